//! Why a function cannot be saved or read.

use std::io;
use std::path::PathBuf;

use crate::reason::reason;

use super::limits::{LONGEST_EXAMPLE, LONGEST_SOURCE, MOST_BYTES, MOST_EARLIER, MOST_TOOLS};

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("'{0}' is not the name of a function")]
    Name(String),
    #[error("a saved function cannot be called '{name}', which is {owner}: give it another name")]
    Reserved { name: String, owner: &'static str },
    #[error("the source of the function is longer than {} KiB", LONGEST_SOURCE >> 10)]
    TooLong,
    #[error("the example is longer than {} KiB", LONGEST_EXAMPLE >> 10)]
    LongExample,
    #[error("the saved functions have reached their limit of {MOST_TOOLS} or {} MiB", MOST_BYTES >> 20)]
    TooMany,
    #[error(
        "the earlier versions of saved functions have reached their limit of {} MiB",
        MOST_EARLIER >> 20
    )]
    TooManyVersions,
    #[error("there is no saved function '{name}'")]
    Unknown { name: String, nearest: Option<String> },
    #[error("the saved function '{name}' has no version {version}")]
    UnknownVersion { name: String, version: u32 },
    #[error("the saved function '{0}' has no example")]
    NoExample(String),
    #[error(
        "the saved function '{0}' needs your approval first: its source has changed since you imported it"
    )]
    Unapproved(String),
    #[error("'{}' defines no function: no line begins with `def NAME(`", .0.display())]
    NoFunction(PathBuf),
    #[error("'{}' defines several functions: {}", file.display(), names.join(", "))]
    SeveralFunctions { file: PathBuf, names: Vec<String> },
    #[error("'{}' is not a file", .0.display())]
    NoFile(PathBuf),
    #[error("'{}' is no skill of a function: it has no file scripts/NAME.py", .0.display())]
    NoScript(PathBuf),
    #[error("'{}' has several files in scripts", folder.display())]
    SeveralScripts { folder: PathBuf, file: PathBuf },
    /// The path is for the user, not for the sandbox.
    #[error("could not {action} '{}': {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl ToolError {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest: Some(name), .. } => {
                Some(format!("did you mean {name}? `codebridge saved ls` lists all"))
            }
            Self::Unknown { .. } => Some("`codebridge saved ls` lists all".into()),
            Self::UnknownVersion { name, .. } => {
                Some(format!("`codebridge saved show {name}` says which versions there are"))
            }
            Self::NoExample(_) => Some("code gives it one with save_tool(function, example=\"…\")".into()),
            Self::Unapproved(_) => Some("`codebridge saved ls` says how".into()),
            Self::SeveralScripts { file, .. } => {
                Some(format!("name one of them, such as '{}'", file.display()))
            }
            Self::NoScript(_) | Self::NoFunction(_) => {
                Some("name the folder of a skill, or a file with one function".into())
            }
            Self::SeveralFunctions { .. } => {
                Some("import a file for each of them; a function can define others inside".into())
            }
            Self::TooMany | Self::TooManyVersions => Some("remove some with `codebridge saved rm`".into()),
            _ => None,
        }
    }

    /// Returns the error in the words that code in the sandbox gets: without a path of the host.
    pub fn for_sandbox(&self) -> String {
        match self {
            Self::Io { action, source, .. } => {
                format!("the bridge could not {action} the function: {}", reason(source))
            }
            Self::TooMany | Self::TooManyVersions => {
                format!("{self}: the user removes some with `codebridge saved rm`")
            }
            error => error.to_string(),
        }
    }
}
