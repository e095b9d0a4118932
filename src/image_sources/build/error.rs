//! Errors of a build.

use std::io;
use std::path::{Path, PathBuf};

use codebridge_images::RecipeError;
use codebridge_runtimes::exec::ExecError;

/// The reason why an image was not built. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("failed to {what} '{path}': {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{name} is required to build an image, but is not installed")]
    Missing { name: &'static str, package: &'static str },
    #[error("apt has no mirror of Debian on this machine")]
    NoMirror,
    #[error("'{0}' is not the URL of a mirror")]
    Mirror(String),
    #[error("apt printed '{0}' instead of a package with a SHA-256 digest")]
    Offer(String),
    #[error("the recipe '{recipe}' is not pinned to any versions for {architecture}")]
    NotPinned { recipe: String, architecture: String },
    #[error(
        "the mirror has other packages than the recipe '{recipe}' is pinned to: {}",
        shortened(differences)
    )]
    Moved { recipe: String, differences: Vec<String> },
    #[error("the downloaded file '{file}' has digest {actual}, which is not the one of its package")]
    Digest { file: String, actual: String },
    #[error("pip downloaded '{0}', which is not a wheel")]
    Wheel(String),
    #[error("images cannot be built for {0}")]
    Architecture(String),
}

impl BuildError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { package, .. } => Some(format!("install the package {package}")),
            Self::NoMirror => Some("choose one with --mirror URL".into()),
            Self::Moved { .. } => Some(
                "use the current packages with --update, or a mirror that keeps old versions with --mirror URL"
                    .into(),
            ),
            Self::NotPinned { .. } => Some("use the current packages with --update".into()),
            _ => None,
        }
    }

    /// Returns whether the build was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Recipe(RecipeError::Cancelled))
    }
}

/// Returns the first differences.
fn shortened(differences: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = differences.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if differences.len() > SHOWN {
        text.push_str(&format!(", and {} more", differences.len() - SHOWN));
    }
    text
}
