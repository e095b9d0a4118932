//! The folders that a user shares with sandboxes: `DIR` or `DIR:NAME`.

use std::path::{Path, PathBuf};

/// A folder of this machine that code sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Absolute.
    pub path: PathBuf,
    /// The name below [`Share::PLACE`].
    pub name: String,
}

impl Share {
    /// The folder of all shares in a sandbox.
    pub const PLACE: &str = "/shared";
    /// Bytes of a name.
    const LONGEST_NAME: usize = 128;

    /// Returns where code finds it.
    pub fn target(&self) -> String {
        format!("{}/{}", Self::PLACE, self.name)
    }

    /// Reads one share; `absolute` makes a path absolute.
    pub(super) fn parse<E>(
        text: &str,
        absolute: impl FnOnce(&str) -> Result<PathBuf, E>,
    ) -> Result<Result<Self, ShareProblem>, E> {
        let (path, name) = match text.rsplit_once(':') {
            // `DIR:/PLACE` is a habit from containers. A folder whose name has such a colon is that folder.
            Some((_, name)) if name.starts_with('/') && !Path::new(text).exists() => {
                return Ok(Err(ShareProblem::Place(name.to_owned())));
            }
            Some((path, name)) if !name.contains('/') => (path, Some(name)),
            _ => (text, None),
        };
        if path.trim().is_empty() {
            return Ok(Err(ShareProblem::NoFolder));
        }
        let path = absolute(path)?;
        let name = match name {
            Some(name) => name.to_owned(),
            None => match own_name(&path) {
                Some(name) => name,
                None => return Ok(Err(ShareProblem::NoName(path))),
            },
        };
        let plain = !matches!(name.as_str(), "" | "." | "..")
            && name.len() <= Self::LONGEST_NAME
            && !name.contains(|c: char| matches!(c, '/' | ',' | ':') || c.is_control());
        if matches!(name.as_str(), "ro" | "rw") {
            return Ok(Err(ShareProblem::Mode(name)));
        }
        Ok(if plain { Ok(Self { path, name }) } else { Err(ShareProblem::Name(name)) })
    }
}

/// Returns the folder's own name, that of the folder itself for `.` and `..`.
fn own_name(path: &Path) -> Option<String> {
    let name = match path.file_name() {
        Some(name) => name.to_owned(),
        None => path.canonicalize().ok()?.file_name()?.to_owned(),
    };
    name.into_string().ok()
}

/// Why a share cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareProblem {
    #[error("expected DIR or DIR:NAME")]
    NoFolder,
    #[error("'{}' has no name of its own", .0.display())]
    NoName(PathBuf),
    #[error("'{0}' cannot be the name of a share")]
    Name(String),
    #[error("'{0}' cannot be the name of a share: shares are always read-only")]
    Mode(String),
    #[error("'{0}' cannot be the name of a share: it has a slash")]
    Place(String),
    #[error("two shares have the name '{0}'")]
    Twice(String),
}

impl ShareProblem {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::NoFolder => None,
            Self::NoName(path) => Some(format!("add a name: {}:NAME", path.display())),
            Self::Name(name) if name.contains(',') => Some(
                "did you mean two shares? Each has its own flag: --share DIR --share DIR; a folder with a comma needs a name: DIR:NAME"
                    .into(),
            ),
            Self::Name(_) => {
                Some("add a name without slashes, commas, colons and control characters: DIR:NAME".into())
            }
            Self::Mode(_) => Some("leave it out: --share DIR".into()),
            Self::Place(_) => Some("NAME has no slash: --share DIR:data is read at /shared/data".into()),
            Self::Twice(_) => Some("give one of them another name: DIR:NAME".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> ShareProblem {
        Share::parse(text, |path| Ok::<_, ()>(PathBuf::from(path))).unwrap().unwrap_err()
    }

    #[test]
    fn forms_of_containers_are_refused() {
        for mode in ["ro", "rw"] {
            for text in [format!("/abs/data:{mode}"), format!("/abs/data:/data:{mode}")] {
                let found = problem(&text);
                assert_eq!(found, ShareProblem::Mode(mode.into()), "{text}");
                assert!(found.to_string().contains("always read-only"), "{found}");
            }
        }
        assert!(problem("a,b").hint().is_some_and(|hint| hint.contains("two shares")));
        let found = problem("/abs/data:/data");
        assert!(found.hint().is_some_and(|hint| hint.contains("NAME has no slash")), "{found}");
    }
}
