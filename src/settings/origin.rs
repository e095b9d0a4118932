//! Where a value comes from.

use std::fmt;
use std::ops::Deref;

/// Why a setting has its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// This environment variable.
    Variable(&'static str),
    /// This flag, without the dashes.
    Flag(&'static str),
}

impl Origin {
    /// Returns whether it is a flag.
    pub fn is_flag(self) -> bool {
        matches!(self, Self::Flag(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// A value and the reason for it. Dereferences to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// Returns whether the user set this value.
    pub fn is_explicit(&self) -> bool {
        self.origin != Origin::Default
    }

    /// Returns whether the user set this value on the command line.
    pub fn is_from_flag(&self) -> bool {
        self.origin.is_flag()
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { value: change(self.value), origin: self.origin }
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
