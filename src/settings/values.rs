//! Types of settings.

use std::fmt;
use std::path::PathBuf;

use codebridge_images::ImageName;

/// Which root filesystem the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageChoice {
    /// Nothing was said: this reference if it can be had, else this machine's own Python.
    Unset(String),
    /// An image reference, and no fallback.
    Reference(String),
    /// An image in a file, a folder or an engine's store, with an absolute path.
    Source(ImageName),
    /// A folder that holds a root filesystem.
    Dir(PathBuf),
    /// This machine's own Python.
    Host,
}

impl fmt::Display for ImageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(reference) | Self::Reference(reference) => f.write_str(reference),
            Self::Source(name) => name.fmt(f),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
            Self::Host => f.write_str("host:"),
        }
    }
}

/// The ids of a user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
}

impl fmt::Display for UserIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// Plain text, and only what is not obvious as structured content.
    Compact,
    Toon,
    Json,
}

impl OutputMode {
    pub const NAMES: [&str; 3] = ["compact", "toon", "json"];

    /// Returns the mode of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "compact" => Some(Self::Compact),
            "toon" => Some(Self::Toon),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}
