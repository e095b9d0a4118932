//! Settings that cannot be used.

use std::fmt;

use codebridge_images::NameError;

use codebridge_runtimes::RuntimeKind;

use super::Origin;

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The value does not have the expected form.
    #[error("invalid value {value:?} for {origin}: expected {expected}")]
    Invalid {
        /// The variable or flag.
        origin: Origin,
        /// The value.
        value: String,
        expected: Expected,
    },
    /// The value has the right form, but is too small.
    #[error("invalid value {value:?} for {origin}: the minimum is {least}")]
    TooSmall {
        /// The variable or flag.
        origin: Origin,
        /// The value.
        value: String,
        least: &'static str,
    },
    /// The value has the right form, but is too large.
    #[error("invalid value {value:?} for {origin}: the maximum is {most}")]
    TooLarge {
        /// The variable or flag.
        origin: Origin,
        /// The value.
        value: String,
        most: u32,
    },
    /// The value names no image.
    #[error("invalid value for {origin}: {source}")]
    Image {
        /// The variable or flag.
        origin: Origin,
        source: NameError,
    },
    /// The value is not text.
    #[error("invalid value for {origin}: not valid UTF-8")]
    NotUnicode {
        /// The variable or flag.
        origin: Origin,
    },
    /// A path starts with `~`, and there is no home directory.
    #[error("invalid value {value:?} for {origin}: HOME is not set")]
    NoHome {
        /// The variable or flag.
        origin: Origin,
        /// The value.
        value: String,
    },
}

impl SettingError {
    /// Returns what to do about it, when there is more to say than the message does.
    pub fn hint(&self) -> Option<String> {
        let Self::Invalid { value, expected, .. } = self else { return None };
        let names = match expected {
            Expected::OneOf(names) => *names,
            Expected::Runtime => &RuntimeKind::NAMES,
            _ => return None,
        };
        let nearest = names
            .iter()
            .map(|name| (strsim::jaro_winkler(&value.to_lowercase(), name), name))
            .max_by(|left, right| left.0.total_cmp(&right.0))?;
        (nearest.0 > 0.8).then(|| format!("did you mean {}?", nearest.1))
    }
}

/// The form that a value should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Time,
    Size,
    Count,
    Number,
    Boolean,
    User,
    OneOf(&'static [&'static str]),
    Runtime,
    LogDirectives,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => f.write_str("a time in whole seconds, such as 30, 30s or 2m"),
            Self::Size => f.write_str("a size, such as 512m, 1g or 536870912"),
            Self::Count => f.write_str("a whole number greater than zero"),
            Self::Number => f.write_str("a number greater than zero"),
            Self::Boolean => f.write_str("true or false"),
            Self::User => f.write_str("a user as UID:GID, such as 65534:65534"),
            Self::OneOf(names) => write!(f, "one of {}", names.join(", ")),
            Self::Runtime => f.write_str(
                "auto, podman, docker, crun, runc, podman:CONNECTION, docker:CONTEXT, a list of these separated by commas, or a path",
            ),
            Self::LogDirectives => {
                f.write_str("a level, such as INFO, or directives, such as codebridge=debug")
            }
        }
    }
}
