//! The folder of all artifacts: what is in it, and how much may be.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use codebridge_runtimes::random_hex;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::ArtifactError;
use super::name::check;
use super::space::{MOST_VERSIONS, Space, cost};
use crate::nearest::nearest;

/// Bytes of an `about.json`; none that we wrote is longer.
const LONGEST_ABOUT: u64 = 16 << 10;
const STAGING: &str = ".staging";
/// The file in the folder of a name with the highest number of a removed version.
const LAST: &str = ".last";
/// What stands for itself in a URI.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    pub name: String,
    /// From 1 on.
    pub version: u32,
    pub bytes: u64,
    pub sha256: String,
    pub mime_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The run that saved it.
    pub run: u32,
    pub created: Timestamp,
}

impl Artifact {
    pub const URIS: &str = "codebridge://artifacts/";

    /// Returns the URI of the latest version.
    pub fn uri(&self) -> String {
        format!("{}{}", Self::URIS, utf8_percent_encode(&self.name, PLAIN))
    }

    /// Returns the URI of this version, whatever is saved later.
    pub fn version_uri(&self) -> String {
        format!("{}?version={}", self.uri(), self.version)
    }
}

/// What is removed by [`Artifacts::prune`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Prune {
    /// Versions that were saved before this.
    pub before: Option<Timestamp>,
    /// All but so many versions of each name.
    pub keep: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct Artifacts {
    dir: PathBuf,
    limit: u64,
    space: Space,
}

impl Artifacts {
    /// Returns the artifacts of a state folder, at most so many bytes of them. Nothing is made before one is saved.
    pub fn at(state_dir: &Path, limit: u64) -> Self {
        Self { dir: state_dir.join("artifacts"), limit, space: Space::default() }
    }

    /// Returns how many bytes there may be.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn space(&self) -> &Space {
        &self.space
    }

    /// Returns every version of every artifact, by name and version.
    pub fn all(&self) -> Vec<Artifact> {
        let mut names = names_in(&self.dir);
        names.sort();
        names.iter().flat_map(|name| self.versions(name)).collect()
    }

    /// Returns the latest version of every artifact, by name.
    pub fn latest(&self) -> Vec<Artifact> {
        let mut names = names_in(&self.dir);
        names.sort();
        names.iter().filter_map(|name| self.find(name, None).ok()).collect()
    }

    /// Returns the versions of an artifact, the oldest first.
    fn versions(&self, name: &str) -> Vec<Artifact> {
        self.versions_of(name).into_iter().filter_map(|version| self.about(name, version)).collect()
    }

    /// Returns a version of an artifact, by default the latest.
    pub fn find(&self, name: &str, version: Option<u32>) -> Result<Artifact, ArtifactError> {
        check(name)?;
        let versions = self.versions_of(name);
        if versions.is_empty() {
            return Err(self.unknown(name));
        }
        let found = match version {
            Some(version) => self.about(name, version),
            None => versions.iter().rev().find_map(|version| self.about(name, *version)),
        };
        found.ok_or_else(|| match version {
            Some(version) => ArtifactError::UnknownVersion { name: name.to_owned(), version },
            None => self.unknown(name),
        })
    }

    fn unknown(&self, name: &str) -> ArtifactError {
        // Of a name whose versions were all removed, the folder is left.
        let mut kept = names_in(&self.dir);
        kept.retain(|kept| !self.versions_of(kept).is_empty());
        let nearest = nearest(name, kept.iter().map(String::as_str));
        ArtifactError::Unknown { name: name.to_owned(), nearest: nearest.map(str::to_owned) }
    }

    /// Opens the content of a version.
    pub fn open(&self, artifact: &Artifact) -> Result<File, ArtifactError> {
        let path = self.folder_of(&artifact.name).join(artifact.version.to_string()).join("content");
        File::open(&path).map_err(|source| ArtifactError::Io { action: "read", path, source })
    }

    /// Removes a version, or all of them; returns what was removed.
    pub fn remove(&self, name: &str, version: Option<u32>) -> Result<Vec<Artifact>, ArtifactError> {
        self.find(name, version)?;
        let _lock = self.lock()?;
        let found = match version {
            Some(version) => vec![self.find(name, Some(version))?],
            None => self.versions(name),
        };
        found.iter().try_for_each(|artifact| self.remove_version(artifact))?;
        Ok(found)
    }

    /// Removes old versions; returns what was removed.
    pub fn prune(&self, prune: Prune) -> Result<Vec<Artifact>, ArtifactError> {
        let mut removed = Vec::new();
        if names_in(&self.dir).is_empty() {
            return Ok(removed);
        }
        let _lock = self.lock()?;
        for name in names_in(&self.dir) {
            let versions = self.versions(&name);
            let surplus = prune.keep.map_or(0, |keep| versions.len().saturating_sub(keep));
            for (index, artifact) in versions.into_iter().enumerate() {
                let is_old = prune.before.is_some_and(|before| artifact.created < before);
                if is_old || index < surplus {
                    self.remove_version(&artifact)?;
                    removed.push(artifact);
                }
            }
        }
        Ok(removed)
    }

    /// Removes a version, while the lock is held.
    pub(super) fn remove_version(&self, artifact: &Artifact) -> Result<(), ArtifactError> {
        let folder = self.folder_of(&artifact.name);
        let path = folder.join(artifact.version.to_string());
        let failed = |source| ArtifactError::Io { action: "remove", path: path.clone(), source };
        let last = self.last_version(&artifact.name).to_string();
        // With a rename: a bridge that is killed leaves the old number or the new one.
        let new = folder.join(format!("{LAST}.new"));
        let note = || fs::write(&new, &last).and_then(|()| fs::rename(&new, folder.join(LAST)));
        let noted = note();
        let is_full = matches!(&noted, Err(error) if error.kind() == io::ErrorKind::StorageFull);
        if !is_full {
            noted.map_err(failed)?;
        }
        // Moved away first: nobody sees a part of it. On a full disk not even a folder can be made.
        let trash = self.staging()?.join(random_hex::<8>());
        fs::rename(&path, &trash).map_err(failed)?;
        // What cannot be removed now is swept later.
        let _ = fs::remove_dir_all(&trash);
        if is_full && let Err(error) = note() {
            tracing::debug!(%error, "the number of a removed version may be used again");
        }
        Ok(())
    }

    pub(super) fn folder_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the numbers of the versions of a name, in ascending order.
    pub(super) fn versions_of(&self, name: &str) -> Vec<u32> {
        let numbers = |name: String| name.parse().ok().filter(|number| *number > 0);
        let mut versions: Vec<u32> =
            names_in(&self.folder_of(name)).into_iter().filter_map(numbers).collect();
        versions.sort_unstable();
        versions
    }

    /// Returns the highest number that a version of this name has or had, or 0.
    pub(super) fn last_version(&self, name: &str) -> u32 {
        let removed = fs::read_to_string(self.folder_of(name).join(LAST));
        let removed = removed.ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        self.versions_of(name).last().copied().unwrap_or(0).max(removed)
    }

    fn about(&self, name: &str, version: u32) -> Option<Artifact> {
        let path = self.folder_of(name).join(version.to_string()).join("about.json");
        let is_short = fs::metadata(&path).is_ok_and(|meta| meta.len() <= LONGEST_ABOUT);
        let about = fs::read(&path).ok().filter(|_| is_short)?;
        match serde_json::from_slice(&about) {
            // The folder says what it is, whatever the file says.
            Ok(artifact) => Some(Artifact { name: name.to_owned(), version, ..artifact }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "could not read an artifact");
                None
            }
        }
    }

    /// Returns what all versions count as, and those that are being saved.
    pub fn used(&self) -> u64 {
        self.kept().0 + self.in_staging()
    }

    /// Returns what all versions count as, and their number.
    pub(super) fn kept(&self) -> (u64, usize) {
        let names = names_in(&self.dir).into_iter();
        names
            .map(|name| used_in(&self.folder_of(&name)))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    pub(super) fn in_staging(&self) -> u64 {
        used_in(&self.dir.join(STAGING)).0
    }

    /// Checks that the versions, with one of these bytes, are within the limits.
    pub(super) fn check_space(&self, name: &str, bytes: u64) -> Result<(), ArtifactError> {
        let (kept, versions) = self.kept();
        if versions >= MOST_VERSIONS {
            return Err(ArtifactError::Many { name: name.to_owned(), most: MOST_VERSIONS });
        }
        if kept + cost(bytes) > self.limit { Err(self.full(name)) } else { Ok(()) }
    }

    pub(super) fn full(&self, name: &str) -> ArtifactError {
        ArtifactError::Full { name: name.to_owned(), used: self.kept().0, limit: self.limit }
    }

    /// Waits until nobody else adds or removes an artifact; the lock ends with the file.
    pub(super) fn lock(&self) -> Result<File, ArtifactError> {
        let path = self.staging()?.join("lock");
        let failed = |source| ArtifactError::Io { action: "lock", path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(file)
    }

    /// Makes the folder of what is being saved, for this user alone.
    pub(super) fn staging(&self) -> Result<PathBuf, ArtifactError> {
        let staging = self.dir.join(STAGING);
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(&staging) {
            Ok(()) => Ok(staging),
            Err(source) => Err(ArtifactError::Io { action: "create", path: staging, source }),
        }
    }

    /// Removes what bridges that were killed left behind, while the lock is held.
    pub(super) fn sweep(&self, staging: &Path) {
        for folder in self.left_over(staging) {
            if let Err(error) = fs::remove_dir_all(&folder) {
                tracing::debug!(path = %folder.display(), %error, "could not remove what a dead bridge left");
            }
        }
    }

    /// Returns what bridges that were killed left behind, while the lock is held.
    pub(super) fn left_over(&self, staging: &Path) -> Vec<PathBuf> {
        let is_left_over = |folder: &PathBuf| match File::open(folder.join("content")) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            // Nobody is making one: that takes the lock.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        names_in(staging).into_iter().map(|name| staging.join(name)).filter(is_left_over).collect()
    }

    /// Whether anything was ever saved here.
    pub(super) fn exists(&self) -> bool {
        self.dir.is_dir()
    }
}

/// Returns what the contents of the folders in a folder count as, and how many there are. No file is read.
fn used_in(folder: &Path) -> (u64, usize) {
    let versions = names_in(folder);
    let content = |version| fs::metadata(folder.join(version).join("content")).map_or(0, |meta| meta.len());
    (versions.iter().map(|version| cost(content(version))).sum(), versions.len())
}

/// Returns the names of the folders in a folder, without those that begin with a dot.
fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries.flatten().filter(is_folder).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[cfg(test)]
mod tests;
