//! The folder of saved functions: what is in it, and how it changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use codebridge_runtimes::exec::visible_line;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::details::Details;
use super::error::ToolError;
use super::limits::{
    LONGEST_ERROR, LONGEST_EXAMPLE, LONGEST_SOURCE, MOST_BYTES, MOST_EARLIER, MOST_TOOLS, MOST_VERSIONS,
};
use super::record::{NewTool, Record, Tested, digest};
use super::reserved::owner_of;
use crate::nearest::nearest;

/// Names in a notice.
const MOST_NAMED: usize = 20;
const VERSIONS: &str = ".versions";

#[derive(Debug, Clone)]
pub struct SavedTools {
    dir: PathBuf,
}

/// Why no session defines a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trouble {
    /// Every session has something else of that name.
    NameTaken,
    TooLong,
    Unreadable(String),
    /// It was imported, and the person has not approved this source.
    Unapproved,
}

/// A saved function.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedTool {
    pub name: String,
    pub version: u32,
    /// The earlier versions that are kept, the oldest first.
    pub earlier: Vec<u32>,
    pub saved: Timestamp,
    #[serde(flatten)]
    pub details: Details,
    pub example: Option<String>,
    pub is_imported: bool,
    /// How its example ended, of this source.
    pub tested: Option<Tested>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    #[serde(skip)]
    pub source: String,
    /// Digests of the schemas that it relies on, by `SERVER.TOOL`.
    #[serde(skip)]
    pub(super) schemas: BTreeMap<String, String>,
}

/// What a session starts with.
#[derive(Debug, Default)]
pub struct LoadedTools {
    /// Names and sources, in the order of names.
    pub tools: Vec<(String, String)>,
    /// Names of files that are not loaded, because every session has something else of that name.
    pub(super) reserved: Vec<String>,
    /// Names of those that wait for the person's approval.
    pub(super) unapproved: Vec<String>,
}

impl LoadedTools {
    /// Returns what the first result of the session says.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        let loaded = named(self.tools.iter().map(|(name, _)| name));
        let reserved = named(self.reserved.iter());
        let unapproved = named(self.unapproved.iter());
        let loaded = loaded.map(|names| format!("saved functions: {names}"));
        let reserved = reserved.map(|names| {
            format!("saved functions that were skipped, because every session has something else of that name: {names}")
        });
        let unapproved = unapproved.map(|names| {
            format!("imported functions that were skipped, because their source has changed: {names}; `codebridge saved ls` says how the user approves them")
        });
        loaded.into_iter().chain(reserved).chain(unapproved)
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

/// A file and what is known of it.
struct Stored {
    /// Empty if it cannot be read.
    source: String,
    trouble: Option<Trouble>,
    record: Option<Record>,
}

impl SavedTools {
    /// Returns the functions of a state folder. Nothing is made before one is saved.
    pub fn at(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("tools") }
    }

    /// Returns the file of a function.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.py"))
    }

    /// Saves the source of a function. An earlier one of that name becomes a version, unless it is the same.
    pub fn save(&self, name: &str, source: &str, new: NewTool) -> Result<(), ToolError> {
        check(name)?;
        if let Some(owner) = owner_of(name) {
            return Err(ToolError::Reserved { name: name.to_string(), owner });
        }
        if source.len() > LONGEST_SOURCE {
            return Err(ToolError::TooLong);
        }
        if new.example.as_ref().is_some_and(|example| example.len() > LONGEST_EXAMPLE) {
            return Err(ToolError::LongExample);
        }
        let _lock = self.lock()?;
        let others: Vec<String> = self.names().into_iter().filter(|other| other != name).collect();
        let bytes: u64 = others.iter().map(|other| self.size(other)).sum();
        if others.len() >= MOST_TOOLS || bytes + source.len() as u64 > MOST_BYTES {
            return Err(ToolError::TooMany);
        }
        let path = self.path_of(name);
        if self.size(name) > MOST_EARLIER {
            return Err(ToolError::TooManyVersions);
        }
        let before = match fs::read(&path) {
            Ok(before) => Some(before),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(ToolError::Io { action: "read", path, source }),
        };
        let folder = self.folder_of(name);
        create(&folder)?;
        let is_same = before.as_deref() == Some(source.as_bytes());
        let mut version = self.current(name);
        // Everything is written before anything is replaced: a full disk leaves what there was.
        let staged = stage(&self.dir, source.as_bytes())?;
        if let Some(before) = before.filter(|_| !is_same) {
            version = self.keep(name, version, &before)? + 1;
        }
        let known = Record::read(&self.record_path(name)).ok().flatten();
        let record = Record::of(version, source, new).after(known);
        let staged_record = stage(&folder, &record.to_json())?;
        if !is_same {
            persist(staged, &path)?;
        }
        persist(staged_record, &folder.join("about.json"))?;
        self.forget_old_versions(name);
        Ok(())
    }

    /// Keeps the source of a version; returns its number.
    fn keep(&self, name: &str, version: u32, source: &[u8]) -> Result<u32, ToolError> {
        let last = self.versions(name).last().copied();
        // A save that was interrupted has kept it already.
        if let Some(last) = last
            && fs::read(self.version_path(name, last)).is_ok_and(|kept| kept == source)
        {
            return Ok(last);
        }
        if self.bytes_of_versions() + source.len() as u64 > MOST_EARLIER {
            return Err(ToolError::TooManyVersions);
        }
        let path = self.version_path(name, version);
        let staged = stage(&self.folder_of(name), source)?;
        if let Ok(modified) = fs::metadata(self.path_of(name)).and_then(|meta| meta.modified()) {
            // A version is as old as it was.
            let _ = staged.as_file().set_modified(modified);
        }
        persist(staged, &path)?;
        Ok(version)
    }

    fn forget_old_versions(&self, name: &str) {
        let versions = self.versions(name);
        for version in &versions[..versions.len().saturating_sub(MOST_VERSIONS)] {
            if let Err(error) = fs::remove_file(self.version_path(name, *version)) {
                tracing::warn!(name, version, %error, "could not remove an old version of a saved function");
            }
        }
    }

    /// Returns the number of the current version.
    fn current(&self, name: &str) -> u32 {
        let recorded =
            Record::read(&self.record_path(name)).ok().flatten().map_or(1, |record| record.version);
        let last = self.versions(name).last().copied().unwrap_or(0);
        recorded.max(last.saturating_add(1))
    }

    /// Returns the earlier versions of a function that are kept, the oldest first.
    fn versions(&self, name: &str) -> Vec<u32> {
        let entries = fs::read_dir(self.folder_of(name)).into_iter().flatten().flatten();
        let mut versions: Vec<u32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".py")?.parse().ok())
            .filter(|version| self.version_path(name, *version).is_file())
            .collect();
        versions.sort_unstable();
        versions
    }

    fn bytes_of_versions(&self) -> u64 {
        let folders = fs::read_dir(self.dir.join(VERSIONS)).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// Removes a function with all its versions; returns their number.
    pub fn remove(&self, name: &str) -> Result<usize, ToolError> {
        check(name).map_err(|_| self.unknown(name))?;
        let _lock = self.lock()?;
        let path = self.path_of(name);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.unknown(name)),
            Err(source) => return Err(ToolError::Io { action: "remove", path, source }),
        }
        let (folder, earlier) = (self.folder_of(name), self.versions(name).len());
        match fs::remove_dir_all(&folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ToolError::Io { action: "remove", path: folder, source })
            }
            _ => Ok(earlier + 1),
        }
    }

    /// Keeps how the example of a function ended, with the digests of the schemas that it relied on.
    pub fn note_test(
        &self,
        tool: &SavedTool,
        error: Option<&str>,
        schemas: BTreeMap<String, String>,
    ) -> Result<(), ToolError> {
        let _lock = self.lock()?;
        let Stored { record: Some(mut record), trouble: None, source, .. } = self.stored(&tool.name) else {
            // It was removed meanwhile.
            return Ok(());
        };
        if source != tool.source {
            // It was replaced meanwhile.
            return Ok(());
        }
        let error = error.map(|error| visible_line(&error.chars().take(LONGEST_ERROR).collect::<String>()));
        record.tested = Some(Tested { at: Timestamp::now(), error, source: digest(tool.source.as_bytes()) });
        record.schemas = schemas;
        let staged = stage(&self.folder_of(&tool.name), &record.to_json())?;
        persist(staged, &self.record_path(&tool.name))
    }

    /// Returns a function that has an example.
    pub fn testable(&self, name: &str) -> Result<SavedTool, ToolError> {
        let tool = self.readable(name)?;
        match (&tool.trouble, &tool.example) {
            (Some(Trouble::Unapproved), _) => Err(ToolError::Unapproved(tool.name)),
            (_, None) => Err(ToolError::NoExample(tool.name)),
            _ => Ok(tool),
        }
    }

    /// Returns the names of the functions that a session can have.
    pub fn usable_names(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| owner_of(name).is_none()).take(MOST_TOOLS).collect()
    }

    /// Returns all functions by name, also those that no session defines.
    pub fn list(&self) -> Vec<SavedTool> {
        self.names().iter().filter_map(|name| self.tool(name)).collect()
    }

    /// Returns a function.
    pub fn find(&self, name: &str) -> Result<SavedTool, ToolError> {
        let found = check(name).ok().and_then(|()| self.tool(name));
        found.ok_or_else(|| self.unknown(name))
    }

    /// Returns a function whose source can be read.
    pub fn readable(&self, name: &str) -> Result<SavedTool, ToolError> {
        let tool = self.find(name)?;
        let why = match &tool.trouble {
            Some(Trouble::TooLong) => return Err(ToolError::TooLong),
            Some(Trouble::Unreadable(why)) => why.clone(),
            _ => return Ok(tool),
        };
        let source = io::Error::other(why);
        Err(ToolError::Io { action: "read", path: self.path_of(name), source })
    }

    /// Returns the source of a version.
    pub fn version(&self, name: &str, version: u32) -> Result<String, ToolError> {
        if version == self.find(name)?.version {
            return Ok(self.readable(name)?.source);
        }
        let path = self.version_path(name, version);
        match read(&path) {
            Ok(source) => Ok(source),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ToolError::UnknownVersion { name: name.to_owned(), version })
            }
            Err(source) => Err(ToolError::Io { action: "read", path, source }),
        }
    }

    fn unknown(&self, name: &str) -> ToolError {
        let names = self.names();
        let nearest = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
        ToolError::Unknown { name: name.to_owned(), nearest }
    }

    fn tool(&self, name: &str) -> Option<SavedTool> {
        let meta = fs::metadata(self.path_of(name)).ok()?;
        let saved = meta.modified().ok().and_then(|time| Timestamp::try_from(time).ok()).unwrap_or_default();
        let Stored { source, trouble, record } = self.stored(name);
        let is_imported = record.as_ref().is_some_and(|record| record.approved.is_some());
        let sha256 = digest(source.as_bytes());
        let is_current = record.as_ref().is_some_and(|record| record.sha256 == sha256);
        let schemas = record.as_ref().map(|record| record.schemas.clone()).unwrap_or_default();
        let tested = record.as_ref().and_then(|record| record.tested.clone());
        let tested = tested.filter(|tested| tested.source == sha256);
        let (details, example) = match record {
            Some(Record { details, example, .. }) if is_current => (details, example),
            record => (Details::scanned(name, &source), record.and_then(|record| record.example)),
        };
        Some(SavedTool {
            name: name.to_owned(),
            version: self.current(name),
            earlier: self.versions(name),
            saved,
            details,
            example,
            is_imported,
            tested,
            trouble,
            source,
            schemas,
        })
    }

    /// Reads a function and what is known of it.
    fn stored(&self, name: &str) -> Stored {
        let (source, unreadable) = match read(&self.path_of(name)) {
            Ok(source) => (source, None),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                (String::new(), Some(Trouble::TooLong))
            }
            Err(error) => (String::new(), Some(Trouble::Unreadable(error.to_string()))),
        };
        let record = Record::read(&self.record_path(name));
        let is_approved = match &record {
            Ok(Some(Record { approved: Some(approved), .. })) => *approved == digest(source.as_bytes()),
            Ok(_) => true,
            // It may have said that the function was imported.
            Err(_) => false,
        };
        let taken = || owner_of(name).map(|_| Trouble::NameTaken);
        let trouble = unreadable.or_else(taken).or_else(|| (!is_approved).then_some(Trouble::Unapproved));
        Stored { source, trouble, record: record.ok().flatten() }
    }

    /// Returns every function that sessions define; files that cannot be read are skipped.
    pub fn load(&self) -> LoadedTools {
        let mut loaded = LoadedTools::default();
        let (reserved, usable): (Vec<_>, Vec<_>) =
            self.names().into_iter().partition(|name| owner_of(name).is_some());
        loaded.reserved = reserved;
        let mut bytes = 0;
        for name in usable {
            // The user may have added more files than can be saved.
            let size = self.size(&name);
            if loaded.tools.len() == MOST_TOOLS || size > LONGEST_SOURCE as u64 || bytes + size > MOST_BYTES {
                tracing::warn!(name, size, "skipped a saved tool: it is too long, alone or with the others");
                continue;
            }
            match self.stored(&name) {
                Stored { trouble: None, source, .. } => {
                    bytes += size;
                    loaded.tools.push((name, source));
                }
                Stored { trouble: Some(Trouble::Unapproved), .. } => loaded.unapproved.push(name),
                Stored { trouble, .. } => tracing::warn!(name, ?trouble, "could not read a saved tool"),
            }
        }
        loaded
    }

    /// Returns a number that changes when a function changes, or what is known of one.
    pub fn stamp(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for name in self.names() {
            for path in [self.path_of(&name), self.record_path(&name)] {
                let meta = fs::metadata(path);
                let stamp = meta.map(|meta| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()));
                (&name, stamp.ok()).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.path_of(name)).map_or(0, |meta| meta.len())
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

    /// Returns the folder of what is beside the source of a function.
    fn folder_of(&self, name: &str) -> PathBuf {
        self.dir.join(VERSIONS).join(name)
    }

    fn version_path(&self, name: &str, version: u32) -> PathBuf {
        self.folder_of(name).join(format!("{version}.py"))
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.folder_of(name).join("about.json")
    }

    /// Waits until nobody else writes; the lock ends with the file.
    fn lock(&self) -> Result<File, ToolError> {
        let folder = self.dir.join(VERSIONS);
        create(&folder)?;
        let path = folder.join(".lock");
        let failed = |source| ToolError::Io { action: "lock", path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(file)
    }
}

pub(super) fn check(name: &str) -> Result<(), ToolError> {
    if is_identifier(name) { Ok(()) } else { Err(ToolError::Name(name.to_string())) }
}

/// Whether the name is an ASCII identifier that every file system accepts.
fn is_identifier(name: &str) -> bool {
    name.len() <= 200
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads a source, unless it is too long.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut source = String::new();
    File::open(path)?.take(LONGEST_SOURCE as u64 + 1).read_to_string(&mut source)?;
    if source.len() > LONGEST_SOURCE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(source) }
}

fn create(folder: &Path) -> Result<(), ToolError> {
    fs::create_dir_all(folder).map_err(|source| ToolError::Io {
        action: "create",
        path: folder.into(),
        source,
    })
}

/// Writes a temporary file, to be renamed when all is well.
fn stage(folder: &Path, bytes: &[u8]) -> Result<NamedTempFile, ToolError> {
    let failed = |source| ToolError::Io { action: "write to", path: folder.into(), source };
    let mut staged = NamedTempFile::new_in(folder).map_err(failed)?;
    staged.write_all(bytes).map_err(failed)?;
    Ok(staged)
}

fn persist(staged: NamedTempFile, path: &Path) -> Result<(), ToolError> {
    let failed = |source| ToolError::Io { action: "write", path: path.into(), source };
    staged.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
