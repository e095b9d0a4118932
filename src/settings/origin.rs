//! Where a value came from.

use std::fmt;
use std::ops::Deref;

/// Why a setting has its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// This environment variable.
    Variable(&'static str),
    /// This flag of the command line, without the dashes.
    Flag(&'static str),
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

/// A value and why it was chosen. Reads like the value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Why it was chosen.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// Whether somebody asked for this value.
    pub fn is_explicit(&self) -> bool {
        self.origin != Origin::Default
    }

    /// Whether it was asked for on the command line.
    pub fn is_of_a_flag(&self) -> bool {
        matches!(self.origin, Origin::Flag(_))
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
