//! Why an image was not built.

use std::io;
use std::path::{Path, PathBuf};

use codebridge_images::RecipeError;
use codebridge_runtimes::exec::ExecError;

/// Why an image was not built. Nothing of it stays.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The recipe makes no sense, or a package is not decent.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A program failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A file could not be read, written or removed.
    #[error("failed to {what} '{path}': {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program is not installed.
    #[error("{name} is not installed, which building an image takes")]
    Missing {
        /// Which program.
        name: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// This machine's package manager knows no mirror of the distribution.
    #[error("apt knows no mirror of Debian on this machine")]
    NoMirror,
    /// A mirror that apt would not understand.
    #[error("'{0}' is no address of a mirror")]
    Mirror(String),
    /// What apt says was not understood.
    #[error("apt offers '{0}', which is no package with a SHA-256 digest")]
    Offer(String),
    /// There is no file with versions for this architecture.
    #[error("the recipe '{recipe}' is not pinned to any versions for {architecture}")]
    NotPinned {
        /// Which recipe.
        recipe: String,
        /// For what.
        architecture: String,
    },
    /// The mirror has other packages than the recipe wants.
    #[error(
        "the mirror has other packages than the recipe '{recipe}' is pinned to: {}",
        shortened(differences)
    )]
    Moved {
        /// Which recipe.
        recipe: String,
        /// What is other.
        differences: Vec<String>,
    },
    /// A downloaded file is not what was offered.
    #[error("'{file}' is not what it should be: it has digest {actual}")]
    Digest {
        /// Which file.
        file: String,
        /// What it is.
        actual: String,
    },
    /// Nobody knows where this architecture's Python would be.
    #[error("images cannot be built for {0}")]
    Architecture(String),
}

impl BuildError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { package, .. } => Some(format!("install the package {package}")),
            Self::NoMirror => Some("name one with --mirror URL".into()),
            Self::Moved { .. } => Some(
                "take what there is now with --update, or name a mirror that keeps old versions with --mirror URL"
                    .into(),
            ),
            Self::NotPinned { .. } => Some("take what there is now with --update".into()),
            _ => None,
        }
    }

    /// Whether it was given up because somebody said so.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Recipe(RecipeError::Cancelled))
    }
}

/// As many as one reads.
fn shortened(differences: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = differences.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if differences.len() > SHOWN {
        text.push_str(&format!(", and {} more", differences.len() - SHOWN));
    }
    text
}
