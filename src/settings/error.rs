//! What can be wrong with a setting.

use std::fmt;

use codebridge_images::NameError;

use super::{Origin, RuntimeChoice};

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The value is not of the expected form.
    #[error("{origin}: {value:?} is not {expected}")]
    Invalid {
        /// The variable or flag.
        origin: Origin,
        /// What it said.
        value: String,
        /// What it should have said.
        expected: Expected,
    },
    /// The value is of the right form, and not allowed.
    #[error("{origin}: {value:?} is less than the least that works, {least}")]
    TooSmall {
        /// The variable or flag.
        origin: Origin,
        /// What it said.
        value: String,
        /// The least that is allowed.
        least: &'static str,
    },
    /// The value is of the right form, and too large to be used.
    #[error("{origin}: {value:?} is more than the most that works, {most}")]
    TooLarge {
        /// The variable or flag.
        origin: Origin,
        /// What it said.
        value: String,
        /// The most that is allowed.
        most: u32,
    },
    /// The value names no image.
    #[error("{origin}: {source}")]
    Image {
        /// The variable or flag.
        origin: Origin,
        /// What is wrong with the name.
        source: NameError,
    },
    /// The value is not text.
    #[error("{origin}: the value is not valid UTF-8")]
    NotUnicode {
        /// The variable or flag.
        origin: Origin,
    },
    /// A path starts with `~` and nobody knows where that is.
    #[error("{origin}: {value:?} needs a home directory, and HOME is not set")]
    NoHome {
        /// The variable or flag.
        origin: Origin,
        /// What it said.
        value: String,
    },
}

impl SettingError {
    /// What to do about it, when more can be said than the message does.
    pub fn hint(&self) -> Option<String> {
        let Self::Invalid { value, expected, .. } = self else { return None };
        let names = match expected {
            Expected::OneOf(names) => *names,
            Expected::Runtime => &RuntimeChoice::NAMES,
            _ => return None,
        };
        let nearest = names
            .iter()
            .map(|name| (strsim::jaro_winkler(&value.to_lowercase(), name), name))
            .max_by(|left, right| left.0.total_cmp(&right.0))?;
        (nearest.0 > 0.8).then(|| format!("did you mean {}?", nearest.1))
    }
}

/// What a value should look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A time.
    Time,
    /// A size in bytes.
    Size,
    /// A whole number above zero.
    Count,
    /// A number above zero.
    Number,
    /// Yes or no.
    Boolean,
    /// A user and a group.
    User,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A runtime's name or a path.
    Runtime,
    /// Log directives.
    LogDirectives,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => f.write_str("a time in whole seconds such as 30, 30s or 2m"),
            Self::Size => f.write_str("a size such as 512m, 1g or 536870912"),
            Self::Count => f.write_str("a whole number above zero"),
            Self::Number => f.write_str("a number above zero"),
            Self::Boolean => f.write_str("true or false"),
            Self::User => f.write_str("a user as UID:GID, such as 65534:65534"),
            Self::OneOf(names) => write!(f, "one of {}", names.join(", ")),
            Self::Runtime => f.write_str("auto, podman, docker, crun, runc, podman:CONNECTION, docker:CONTEXT, several of them with commas, or a path"),
            Self::LogDirectives => {
                f.write_str("a level such as INFO, or directives such as codebridge=debug")
            }
        }
    }
}
