//! Saved tools: `<state dir>/tools/<name>.py`, one function each. `save_tool` writes them, the start of a session reads them,
//! the user may read, edit and delete them.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::reserved::owner_of;

/// Bytes of one source.
pub(in crate::session) const LONGEST_SOURCE: usize = 256 << 10;
const MOST_TOOLS: usize = 500;
/// Bytes of all sources: every session holds them, and every start reads them.
const MOST_BYTES: u64 = 4 << 20;
/// Names in a notice.
const MOST_NAMED: usize = 20;

#[derive(Debug, thiserror::Error)]
pub(in crate::session) enum ToolError {
    #[error("'{0}' is not the name of a function")]
    Name(String),
    #[error("a saved function cannot be called '{name}', which is {owner}: give it another name")]
    Reserved { name: String, owner: &'static str },
    #[error("the source of the function is longer than {} KiB", LONGEST_SOURCE >> 10)]
    TooLong,
    #[error(
        "the saved tools have reached their limit of {MOST_TOOLS} or {} MiB: delete some in '{dir}'",
        MOST_BYTES >> 20
    )]
    TooMany { dir: PathBuf },
    #[error("failed to write '{path}': {source}")]
    Write { path: PathBuf, source: io::Error },
}

#[derive(Debug, Clone)]
pub(in crate::session) struct SavedTools {
    dir: PathBuf,
}

/// What a session starts with.
#[derive(Debug, Default)]
pub(in crate::session) struct LoadedTools {
    /// Names and sources, in the order of names.
    pub(in crate::session) tools: Vec<(String, String)>,
    /// Names of files that are not loaded, because every session has something else of that name.
    reserved: Vec<String>,
}

impl LoadedTools {
    /// Returns what the first result of the session says.
    pub(in crate::session) fn notices(&self) -> impl Iterator<Item = String> {
        let loaded = named(self.tools.iter().map(|(name, _)| name));
        let reserved = named(self.reserved.iter());
        let loaded = loaded.map(|names| format!("saved functions: {names}"));
        let reserved = reserved.map(|names| {
            format!("saved functions that were skipped, because every session has something else of that name: {names}")
        });
        loaded.into_iter().chain(reserved)
    }
}

/// Returns the first names; None if there are none.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> Option<String> {
    let more = names.len().saturating_sub(MOST_NAMED);
    let first: Vec<&str> = names.take(MOST_NAMED).map(String::as_str).collect();
    match (first.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(first.join(", ")),
        (false, more) => Some(format!("{} and {more} more", first.join(", "))),
    }
}

impl SavedTools {
    pub(in crate::session) fn at(state_dir: PathBuf) -> Self {
        Self { dir: state_dir.join("tools") }
    }

    /// Saves the source of a function, in place of an earlier one of that name.
    pub(in crate::session) fn save(&self, name: &str, source: &str) -> Result<(), ToolError> {
        if !is_identifier(name) {
            return Err(ToolError::Name(name.to_string()));
        }
        if let Some(owner) = owner_of(name) {
            return Err(ToolError::Reserved { name: name.to_string(), owner });
        }
        if source.len() > LONGEST_SOURCE {
            return Err(ToolError::TooLong);
        }
        let path = self.dir.join(format!("{name}.py"));
        let error = |source| ToolError::Write { path: path.clone(), source };
        fs::create_dir_all(&self.dir).map_err(error)?;
        let others: Vec<String> = self.names().into_iter().filter(|other| other != name).collect();
        let bytes: u64 = others.iter().map(|other| self.size(other)).sum();
        if others.len() >= MOST_TOOLS || bytes + source.len() as u64 > MOST_BYTES {
            return Err(ToolError::TooMany { dir: self.dir.clone() });
        }
        // Written to a temporary file and renamed, so that no session starts with half a function.
        let mut staging = tempfile::NamedTempFile::new_in(&self.dir).map_err(error)?;
        io::Write::write_all(&mut staging, source.as_bytes()).map_err(error)?;
        staging.persist(&path).map_err(|failed| error(failed.error))?;
        Ok(())
    }

    /// Returns the names of the tools that a session can have.
    pub(in crate::session) fn usable_names(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| owner_of(name).is_none()).take(MOST_TOOLS).collect()
    }

    /// Returns every saved tool; files that cannot be read are skipped.
    pub(in crate::session) fn load(&self) -> LoadedTools {
        let read = |name: String| {
            let path = self.dir.join(format!("{name}.py"));
            match fs::read_to_string(&path) {
                Ok(source) => Some((name, source)),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "could not read a saved tool");
                    None
                }
            }
        };
        // The user may have added more files than can be saved.
        let mut bytes = 0;
        let mut fits = |name: &String| {
            let size = self.size(name);
            let fits = size <= LONGEST_SOURCE as u64 && bytes + size <= MOST_BYTES;
            bytes += if fits { size } else { 0 };
            if !fits {
                tracing::warn!(name, size, "skipped a saved tool: it is too long, alone or with the others");
            }
            fits
        };
        let (reserved, usable): (Vec<_>, Vec<_>) =
            self.names().into_iter().partition(|name| owner_of(name).is_some());
        let fitting = usable.into_iter().filter(|name| fits(name)).take(MOST_TOOLS);
        LoadedTools { tools: fitting.filter_map(read).collect(), reserved }
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.dir.join(format!("{name}.py"))).map_or(0, |meta| meta.len())
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".py").map(String::from))
            .filter(|name| is_identifier(name))
            .collect();
        names.sort();
        names
    }
}

/// Whether the name is an ASCII identifier that every file system accepts.
fn is_identifier(name: &str) -> bool {
    name.len() <= 200
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_tool_comes_back_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let tools = SavedTools::at(dir.path().join("not there yet"));
        assert!(tools.load().tools.is_empty());
        tools.save("double", "def double(x): return x").unwrap();
        tools.save("double", "def double(x): return 2 * x").unwrap();
        assert_eq!(tools.load().tools, [("double".to_string(), "def double(x): return 2 * x".to_string())]);
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let tools = SavedTools::at(dir.path().into());
        for name in ["../x", "a/b", "", "1a", "a b", "a.b"] {
            assert!(matches!(tools.save(name, ""), Err(ToolError::Name(_))), "{name}");
        }
        assert!(matches!(tools.save("x", &"x".repeat(LONGEST_SOURCE + 1)), Err(ToolError::TooLong)));
    }

    #[test]
    fn the_tools_of_a_session_are_bounded_together() {
        let dir = tempfile::tempdir().unwrap();
        let tools = SavedTools::at(dir.path().into());
        let longest = "#".repeat(LONGEST_SOURCE);
        let most = MOST_BYTES as usize / LONGEST_SOURCE;
        for number in 0..most {
            tools.save(&format!("t{number}"), &longest).unwrap();
        }
        assert!(matches!(tools.save("one_more", "x"), Err(ToolError::TooMany { .. })));
        tools.save("t0", &longest).unwrap();
        fs::write(dir.path().join("tools/by_hand.py"), &longest).unwrap();
        assert_eq!(tools.load().tools.len(), most);
    }

    #[test]
    fn no_tool_takes_the_name_of_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let tools = SavedTools::at(dir.path().into());
        tools.save("double", "def double(x): return 2 * x").unwrap();
        assert_eq!(tools.load().notices().collect::<Vec<_>>(), ["saved functions: double"]);
        for name in ["__builtins__", "print", "mcp_github", "runtime"] {
            let error = tools.save(name, "x").unwrap_err();
            assert!(matches!(error, ToolError::Reserved { .. }), "{error}");
            // An earlier version wrote such files.
            fs::write(dir.path().join(format!("tools/{name}.py")), format!("def {name}(): pass")).unwrap();
        }
        let loaded = tools.load();
        assert_eq!((loaded.tools.len(), tools.usable_names()), (1, vec!["double".to_string()]));
        let notices: Vec<_> = loaded.notices().collect();
        assert!(notices[1].ends_with(": __builtins__, mcp_github, print, runtime"), "{notices:?}");
    }

    #[test]
    fn a_notice_names_some_of_many_tools() {
        let tools = (0..100).map(|n| (format!("t{n}"), String::new())).collect();
        let notices: Vec<_> = LoadedTools { tools, reserved: Vec::new() }.notices().collect();
        assert!(
            notices[0].starts_with("saved functions: t0, t1, ") && notices[0].ends_with("t19 and 80 more"),
            "{notices:?}"
        );
        assert_eq!(LoadedTools::default().notices().count(), 0);
    }
}
