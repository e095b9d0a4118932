//! Settings that cannot be used.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use codebridge_images::NameError;
use codebridge_runtimes::RuntimeKind;

use super::{Origin, ShareProblem, Variable};
use crate::nearest::nearest;
use crate::requirements::{Permission, RequirementError};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("invalid value {value:?} for {origin}: expected {expected}")]
    Invalid { origin: Origin, value: String, expected: Expected },
    #[error("invalid value {value:?} for {origin}: the minimum is {least}")]
    TooSmall { origin: Origin, value: String, least: &'static str },
    #[error("invalid value {value:?} for {origin}: the maximum is {most}")]
    TooLarge { origin: Origin, value: String, most: u32 },
    #[error("invalid value for {origin}: {source}")]
    Image { origin: Origin, source: NameError },
    #[error("invalid value for {origin}: {problem}")]
    Share { origin: Origin, problem: ShareProblem },
    #[error("invalid value for {origin}: {source}")]
    Requirement { origin: Origin, source: RequirementError },
    #[error("invalid value for {origin}: '{path}' {problem}")]
    Pod { origin: Origin, path: PathBuf, problem: String },
    #[error("invalid value for {origin}: not valid UTF-8")]
    NotUnicode { origin: Origin },
    #[error("invalid value {value:?} for {origin}: HOME is not set")]
    NoHome { origin: Origin, value: String },
}

impl SettingError {
    /// Returns what to do about it, when there is more to say than the message does.
    pub fn hint(&self) -> Option<String> {
        let (value, expected) = match self {
            Self::Invalid { value, expected, .. } => (value, expected),
            Self::Image { source, .. } => return Some(source.hint()),
            Self::Share { problem, .. } => return problem.hint(),
            Self::Pod { .. } => {
                return Some("`codebridge help kubernetes` has an example of the file".into());
            }
            Self::Requirement { source: RequirementError::File(_), .. } => {
                return Some("name the packages: --with pandas,httpx".into());
            }
            _ => return None,
        };
        let names = match expected {
            Expected::OneOf(names) => *names,
            Expected::Runtime => &RuntimeKind::NAMES,
            Expected::Packages => {
                return Permission::word_meant_by(value).map(|word| format!("did you mean {word}?"));
            }
            _ => return None,
        };
        let name = nearest(value, names.iter().copied())?;
        Some(format!("did you mean {name}?"))
    }
}

/// Something that the user set and that does not do what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingWarning {
    /// No setting has this name.
    Unknown { name: String, nearest: Option<&'static str> },
    /// Another value of the same setting, or of one that goes before it, is used.
    Ignored { ignored: Origin, used: Origin },
    /// The time limit is longer than the longest one.
    Cut { timeout: Origin, wanted: Duration, by: Origin, used: Duration },
}

impl SettingWarning {
    /// Returns the setting that it is about, if that is one.
    pub fn is_about(&self, variable: &Variable) -> bool {
        let origin = match self {
            Self::Unknown { .. } => return false,
            Self::Ignored { ignored: origin, .. } | Self::Cut { timeout: origin, .. } => origin,
        };
        match origin {
            Origin::Default => false,
            Origin::Variable(name) => variable.names().any(|known| known == *name),
            Origin::Flag(flag) => variable.flag == *flag,
        }
    }
}

impl fmt::Display for SettingWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "unknown variable {name} is ignored: did you mean {nearest}?")
            }
            Self::Unknown { name, nearest: None } => {
                write!(
                    f,
                    "unknown variable {name} is ignored: `codebridge help settings` lists the variables"
                )
            }
            Self::Ignored { ignored, used } => write!(f, "{ignored} is ignored: {used} is set"),
            Self::Cut { timeout, wanted, by, used } => {
                let (wanted, used) = (wanted.as_secs(), used.as_secs());
                write!(f, "{timeout} of {wanted} s is longer than {by} allows: {used} s is used")
            }
        }
    }
}

/// The form that a value should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Time,
    Size,
    Count,
    WholeNumber,
    Number,
    Boolean,
    User,
    OneOf(&'static [&'static str]),
    Runtime,
    LogDirectives,
    Hosts,
    Packages,
    Registry,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => f.write_str("a time in whole seconds, such as 30, 30s or 2m"),
            Self::Size => f.write_str("a size, such as 512m, 1g or 536870912"),
            Self::Count => f.write_str("a whole number greater than zero"),
            Self::WholeNumber => f.write_str("a whole number"),
            Self::Number => f.write_str("a number greater than zero"),
            Self::Boolean => f.write_str("true or false"),
            Self::User => f.write_str("a user as UID:GID, such as 65534:65534"),
            Self::OneOf(names) => write!(f, "one of {}", names.join(", ")),
            Self::Runtime => f.write_str(
                "auto, podman, docker, crun, runc, podman:CONNECTION, docker:CONTEXT, kubernetes:CONTEXT/NAMESPACE, a list of these separated by commas, or a path",
            ),
            Self::Packages => f.write_str(
                "off, allow, locked:FILE, or package names separated by commas, such as numpy,pandas>=2,scikit-*",
            ),
            Self::Hosts => f.write_str("names of hosts separated by commas, such as mcp.example.com"),
            Self::Registry => f.write_str("a URL, such as https://registry.example"),
            Self::LogDirectives => {
                f.write_str("a level, such as INFO, or directives, such as codebridge=debug")
            }
        }
    }
}
