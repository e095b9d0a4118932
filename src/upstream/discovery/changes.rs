//! Changes of the user's own definitions: those in the state folder. Files of other programs are only read.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value as Json;

use super::definition::{Definition, Server, Skip, Source};
use super::document::parse_json;
use super::edit::{self, EditProblem};
use super::forms::Entry;
use super::snapshot::{Discovery, Snapshot};
use crate::config_file::{ConfigFile, FileError};

/// The file of new definitions, in the state folder.
const FILE: &str = "servers.json";
/// Characters of the name of a new server.
const LONGEST_NAME: usize = 64;

/// Why definitions were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(
        "'{0}' cannot be the name of a server: use letters, digits, '.', '_' and '-', at most {LONGEST_NAME} characters"
    )]
    Name(String),
    #[error("a server named '{name}' is defined already, in {place}")]
    Exists { name: String, place: Source },
    #[error("no server named '{0}' is defined")]
    Unknown(String),
    /// Its file belongs to the user or to another program.
    #[error("'{name}' is defined in {place}, which codebridge does not change")]
    Foreign { name: String, place: Source, hides: bool },
    #[error("'{name}' cannot be added: {why}")]
    Definition { name: String, why: Skip },
    #[error("'{name}' is not disabled")]
    NotDisabled { name: String },
    #[error("'{name}' is disabled already, in {place}")]
    Disabled { name: String, place: Source },
    #[error("could not change '{}': {problem}", file.display())]
    Edit { file: PathBuf, problem: EditProblem },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("could not lock '{}': {source}", folder.display())]
    Lock { folder: PathBuf, source: io::Error },
}

/// Whether a new server can have a name.
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= LONGEST_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_plain)
}

impl Discovery {
    /// Returns where a server of a name is defined, if a new one would be in its way.
    ///
    /// # Errors
    /// The name is defined already, or cannot be one.
    pub fn check_new(&self, name: &str) -> Result<(), ChangeError> {
        if !is_name(name) {
            return Err(ChangeError::Name(name.chars().take(LONGEST_NAME).collect()));
        }
        match in_effect(&self.snapshot(), name) {
            Some(server) => Err(ChangeError::Exists { name: name.into(), place: server.source.clone() }),
            None => Ok(()),
        }
    }

    /// Writes a new definition. Returns its file.
    ///
    /// # Errors
    /// The name is defined already, or the file cannot be changed.
    pub fn add(&self, name: &str, definition: &Json) -> Result<PathBuf, ChangeError> {
        let _turn = self.turn()?;
        self.check_new(name)?;
        self.check_definition(name, definition)?;
        self.write(name, definition)
    }

    /// Checks whether a definition can be used. Its variables need not be set yet.
    ///
    /// # Errors
    /// It can never be used.
    pub fn check_definition(&self, name: &str, definition: &Json) -> Result<Option<Definition>, ChangeError> {
        let failed = |why| ChangeError::Definition { name: name.into(), why };
        let node = parse_json(&definition.to_string()).ok().flatten();
        let node = node.ok_or_else(|| failed(Skip::Invalid("it is empty".into())))?;
        match self.definition(&Entry { name, node: &node, opencode: false }) {
            Ok(definition) => Ok(Some(definition)),
            Err(Skip::MissingVariable(_)) => Ok(None),
            Err(why) => Err(failed(why)),
        }
    }

    /// As [`Self::add`], of a definition that another program has. Only the state folder must not have one of the name.
    ///
    /// # Errors
    /// The state folder has a definition of the name, or the file cannot be changed.
    pub fn copy(&self, name: &str, definition: &Json) -> Result<PathBuf, ChangeError> {
        let _turn = self.turn()?;
        if let Some(own) = self.all_of(&self.snapshot(), name).find(|server| self.is_own(server)) {
            return Err(ChangeError::Exists { name: name.into(), place: own.source.clone() });
        }
        self.write(name, definition)
    }

    /// Removes the first definition of a name in the state folder. Returns where it was.
    ///
    /// # Errors
    /// There is none, or the file cannot be changed.
    pub fn remove(&self, name: &str) -> Result<Source, ChangeError> {
        let _turn = self.turn()?;
        let snapshot = self.snapshot();
        let Some(own) = self.all_of(&snapshot, name).find(|server| self.is_own(server)) else {
            return Err(match in_effect(&snapshot, name).or_else(|| self.all_of(&snapshot, name).next()) {
                Some(other) => foreign(other, true),
                None => ChangeError::Unknown(name.into()),
            });
        };
        change(&own.source.path, |text| edit::remove(text, name))?;
        Ok(own.source.clone())
    }

    /// Disables a server. One of another program is hidden by a definition in the state folder. Returns the changed file.
    ///
    /// # Errors
    /// There is none, it is disabled already, or the file cannot be changed.
    pub fn disable(&self, name: &str) -> Result<PathBuf, ChangeError> {
        let _turn = self.turn()?;
        let snapshot = self.snapshot();
        let Some(server) = in_effect(&snapshot, name).or_else(|| self.all_of(&snapshot, name).next()) else {
            return Err(ChangeError::Unknown(name.into()));
        };
        if matches!(server.definition, Err(Skip::Disabled)) {
            return Err(ChangeError::Disabled { name: name.into(), place: server.source.clone() });
        }
        if self.is_own(server) {
            change(&server.source.path, |text| edit::disable(text, name))?;
            return Ok(server.source.path.to_path_buf());
        }
        // It is read before the state folder.
        if self.surroundings().servers_config.as_deref() == Some(&*server.source.path) {
            return Err(foreign(server, false));
        }
        self.write(name, &edit::hiding())
    }

    /// Enables a server that is disabled in the state folder. Returns the changed file.
    ///
    /// # Errors
    /// It is not disabled, or not there; or the file cannot be changed.
    pub fn enable(&self, name: &str) -> Result<PathBuf, ChangeError> {
        let _turn = self.turn()?;
        let snapshot = self.snapshot();
        let server = match in_effect(&snapshot, name).or_else(|| self.all_of(&snapshot, name).next()) {
            None => return Err(ChangeError::Unknown(name.into())),
            Some(server) if !matches!(server.definition, Err(Skip::Disabled)) => {
                return Err(ChangeError::NotDisabled { name: name.into() });
            }
            Some(server) if !self.is_own(server) => return Err(foreign(server, false)),
            Some(server) => server,
        };
        change(&server.source.path, |text| edit::enable(text, name))?;
        Ok(server.source.path.to_path_buf())
    }

    fn write(&self, name: &str, definition: &Json) -> Result<PathBuf, ChangeError> {
        let file = self.surroundings().definitions().join(FILE);
        change(&file, |text| edit::add(text, name, definition))?;
        Ok(file)
    }

    fn is_own(&self, server: &Server) -> bool {
        server.source.path.parent() == Some(self.surroundings().definitions())
    }

    fn all_of<'a>(&self, snapshot: &'a Snapshot, name: &'a str) -> impl Iterator<Item = &'a Arc<Server>> {
        snapshot.servers.iter().chain(&snapshot.skipped).filter(move |server| *server.name == *name)
    }

    /// Waits until no other process changes definitions.
    fn turn(&self) -> Result<File, ChangeError> {
        let folder = self.surroundings().definitions();
        let lock = || {
            fs::create_dir_all(folder)?;
            let locked = File::open(folder)?;
            flock(&locked, FlockOperation::LockExclusive)?;
            Ok(locked)
        };
        lock().map_err(|source| ChangeError::Lock { folder: folder.into(), source })
    }
}

/// Returns the definition that decides for a name: the one that is used, or that keeps later ones from being used.
fn in_effect<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Arc<Server>> {
    let is_it = |server: &&Arc<Server>| *server.name == *name;
    let keeps_name = |server: &&Arc<Server>| {
        matches!(
            server.definition,
            Err(Skip::Disabled | Skip::MissingVariable(_) | Skip::NotInProfile(_) | Skip::Invalid(_))
        )
    };
    let used = snapshot.servers.iter().find(is_it);
    used.or_else(|| snapshot.skipped.iter().filter(keeps_name).find(is_it))
}

fn foreign(server: &Server, hides: bool) -> ChangeError {
    ChangeError::Foreign { name: server.name.to_string(), place: server.source.clone(), hides }
}

fn change(file: &Path, edit: impl FnOnce(&str) -> Result<String, EditProblem>) -> Result<(), ChangeError> {
    let old = ConfigFile::read(file)?;
    let problem = |problem| ChangeError::Edit { file: file.into(), problem };
    Ok(old.replace_private(&edit(old.text()).map_err(problem)?)?)
}
