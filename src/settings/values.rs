//! Types of settings.

use std::fmt;
use std::path::PathBuf;

use codebridge_images::ImageName;

/// Which root filesystem the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageChoice {
    /// The default: this image if it is available, else this machine's own Python.
    Unset(ImageName),
    /// An image, with an absolute path when it is in a file or a folder, and no fallback.
    Image(ImageName),
    /// A folder that holds a root filesystem.
    Dir(PathBuf),
    /// This machine's own Python.
    Host,
}

impl fmt::Display for ImageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Engines resolve short names by rules of their own.
            Self::Unset(ImageName::Registry(name)) | Self::Image(ImageName::Registry(name)) => {
                f.write_str(name.as_typed())
            }
            Self::Unset(name) | Self::Image(name) => name.fmt(f),
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
