//! The policy of a process: one file, which is read again when it changes.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;

use super::budgets::{ServerUses, Spent, Turn};
use super::error::PolicyError;
use super::file::parse;
use super::pins::Pins;
use super::rules::Rules;
use crate::file_stamp::FileStamp;
use crate::settings::Settings;

/// Where the policy and the accepted tools are in the state folder.
const FILE: &str = "policy.toml";
const PINS: &str = "accepted-tools";
/// Bytes of a policy file.
const LONGEST: u64 = 16 << 20;
/// The bits of a mode that let others write.
const WRITABLE_BY_OTHERS: u32 = 0o002;

/// Where the policy comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that the operator has named: it has to be there.
    Named(PathBuf),
    /// The file of the state folder: without it everything is allowed.
    IfPresent(PathBuf),
}

impl Source {
    pub fn path(&self) -> &Path {
        let (Self::Named(path) | Self::IfPresent(path)) = self;
        path
    }
}

/// The policy of a process. A change of the file holds from the next call on.
#[derive(Debug)]
pub struct Policy {
    /// The first that is there decides; never empty.
    sources: Vec<Source>,
    loaded: Mutex<Loaded>,
    uses: ServerUses,
    pins: Pins,
}

/// What the file said when it was read last.
#[derive(Debug, Default)]
struct Loaded {
    /// None as long as there was no file.
    path: Option<PathBuf>,
    stamp: Option<FileStamp>,
    rules: Option<Result<Arc<Rules>, PolicyError>>,
}

impl Policy {
    /// Returns the policy under the settings.
    pub fn of(settings: &Settings) -> Self {
        let state = &settings.state_dir.value;
        let source = match &settings.policy.value {
            Some(file) => Source::Named(file.clone()),
            None => Source::IfPresent(state.join(FILE)),
        };
        Self::new(source, state.join(PINS))
    }

    /// Returns the policy of one of many users. A file of the user's folder goes before the one of the operator; what tools were
    /// accepted is decided by the operator for all.
    pub fn of_principal(operator: &Settings, folder: &Path) -> Self {
        let state = &operator.state_dir.value;
        let own = folder.join(FILE);
        let common = match &operator.policy.value {
            Some(file) => Source::Named(file.clone()),
            None => Source::IfPresent(state.join(FILE)),
        };
        Self {
            sources: vec![Source::IfPresent(own), common],
            ..Self::new(Source::IfPresent(PathBuf::new()), state.join(PINS))
        }
    }

    /// Returns the file of the rules of one of many users.
    pub fn file_of_principal(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Returns the policy of a file, with a folder for the accepted tools. Nothing is read before it is needed.
    pub fn new(source: Source, pins: PathBuf) -> Self {
        Self {
            sources: vec![source],
            loaded: Mutex::default(),
            uses: ServerUses::default(),
            pins: Pins::new(pins),
        }
    }

    /// Returns one that allows everything.
    pub fn none() -> Self {
        Self::new(Source::IfPresent(PathBuf::new()), PathBuf::new())
    }

    /// Returns the accepted tools.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Returns the rules of now; None if there is no policy, and everything is allowed.
    ///
    /// # Errors
    /// The file cannot be read or used: then nothing is allowed.
    pub fn rules(&self) -> Result<Option<Arc<Rules>>, PolicyError> {
        let mut loaded = self.lock();
        for source in &self.sources {
            let path = source.path();
            let is_known = loaded.path.as_deref() == Some(path);
            match std::fs::metadata(path) {
                Ok(metadata) if is_known && loaded.stamp == Some(FileStamp::of(&metadata)) => {}
                // What is read belongs to the file that is open, whatever happens to the path meanwhile.
                Ok(_) => {
                    let (stamp, rules) = load(path);
                    *loaded = Loaded { path: Some(path.into()), stamp, rules: Some(rules.map(Arc::new)) };
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => match source {
                    // Somebody meant a policy: not even the first call may pass without it.
                    _ if path.symlink_metadata().is_ok() => return Err(dangling(path)),
                    // A policy that disappears allows nothing more than before.
                    Source::IfPresent(_) if is_known => return Err(removed(path)),
                    Source::IfPresent(_) => continue,
                    Source::Named(_) => return Err(PolicyError::unreadable(path, &error)),
                },
                Err(error) => return Err(PolicyError::unreadable(path, &error)),
            }
            return loaded.rules.clone().transpose();
        }
        Ok(None)
    }

    /// Waits until a server may be called.
    ///
    /// # Errors
    /// It was called too often.
    pub async fn turn(&self, rules: &Rules, server: &str) -> Result<Turn, Spent> {
        self.uses.begin(&rules.budgets, server).await
    }

    /// Returns where the rules come from, for a user who has none of their own.
    pub fn source(&self) -> &Source {
        &self.sources[self.sources.len() - 1]
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn removed(path: &Path) -> PolicyError {
    let why = "it was removed; restart codebridge to go on without a policy".to_owned();
    PolicyError::Read { file: path.to_path_buf(), why }
}

fn dangling(path: &Path) -> PolicyError {
    let why = "it is a link to a file that does not exist".to_owned();
    PolicyError::Read { file: path.to_path_buf(), why }
}

/// Reads the file; also returns what tells its next change.
fn load(path: &Path) -> (Option<FileStamp>, Result<Rules, PolicyError>) {
    let read = || -> io::Result<(Metadata, String)> {
        // A pipe in its place must not hold every call until somebody writes to it.
        let file =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        let mut text = String::new();
        if metadata.is_file() && metadata.len() <= LONGEST {
            file.take(LONGEST).read_to_string(&mut text)?;
        }
        Ok((metadata, text))
    };
    match read() {
        Ok((metadata, text)) => (Some(FileStamp::of(&metadata)), usable(path, &metadata, &text)),
        Err(error) => (None, Err(PolicyError::unreadable(path, &error))),
    }
}

fn usable(path: &Path, metadata: &Metadata, text: &str) -> Result<Rules, PolicyError> {
    let file = path.to_path_buf();
    if !metadata.is_file() {
        return Err(PolicyError::Unsafe { file, why: "is not a file" });
    }
    if metadata.len() > LONGEST {
        return Err(PolicyError::TooLong { file, bytes: metadata.len(), most: LONGEST });
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(PolicyError::Unsafe { file, why: "can be written by everybody; run `chmod o-w` on it" });
    }
    parse(path, text)
}
