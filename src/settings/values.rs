//! The types of resolved settings that are more than a number or a text.

use std::fmt;
use std::path::PathBuf;

use codebridge_images::ImageName;

/// Which runtime the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// The first one that really works.
    Auto,
    /// Those of these names, found on the search path: a program, or `podman:CONNECTION` and `docker:CONTEXT`. New
    /// sessions are spread over several. Never empty.
    Named(Vec<RuntimeName>),
    /// This executable.
    Path(PathBuf),
}

impl RuntimeChoice {
    /// The runtimes that can be named, in the order in which `auto` tries them.
    pub const NAMES: [&str; 4] = ["podman", "docker", "crun", "runc"];
}

impl fmt::Display for RuntimeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                f.write_str(&names.join(","))
            }
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A runtime's name, and that of one of its engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeName {
    /// One of [`RuntimeChoice::NAMES`].
    pub program: &'static str,
    /// A connection of podman, a context of docker.
    pub connection: Option<String>,
}

impl RuntimeName {
    /// Reads `podman`, `docker:CONTEXT` and the like.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, connection) = match text.trim().split_once(':') {
            Some((name, connection)) => (name, Some(connection)),
            None => (text.trim(), None),
        };
        let name = name.to_ascii_lowercase();
        let program = RuntimeChoice::NAMES.into_iter().find(|known| *known == name)?;
        // It becomes an argument of a command line.
        let fits = connection.is_none_or(|connection| {
            matches!(program, "podman" | "docker")
                && !connection.is_empty()
                && !connection.starts_with('-')
                && !connection.contains(|c: char| c.is_whitespace() || c.is_control())
        });
        fits.then(|| Self { program, connection: connection.map(str::to_owned) })
    }
}

impl fmt::Display for RuntimeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)?;
        self.connection.as_ref().map_or(Ok(()), |connection| write!(f, ":{connection}"))
    }
}

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

/// A user and a group, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

impl fmt::Display for UserIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// How a result is written for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// Plain text, and only what is not obvious as structured content.
    Compact,
    /// The payload in TOON.
    Toon,
    /// The payload in JSON.
    Json,
}

impl OutputMode {
    /// The names of the modes.
    pub const NAMES: [&str; 3] = ["compact", "toon", "json"];

    /// The mode of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "compact" => Some(Self::Compact),
            "toon" => Some(Self::Toon),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}
