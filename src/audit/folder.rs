//! The folder of the log: whose it is, and the names in it.
//!
//! ```text
//! 3fa9c1d2.jsonl     the lines of one bridge
//! 3fa9c1d2.2.jsonl   the next lines, when the first file is full
//! 3fa9c1d2.blobs/    texts that are too long for a line, by their SHA-256; 3fa9c1d2.2.blobs/ for the second file
//! 3fa9c1d2.head      the number and the hash of the last line; locked as long as the bridge lives
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::error::AuditError;

/// The folder in the state folder.
const FOLDER: &str = "audit";
/// The bits of a mode that let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Digits of a bridge.
pub(super) const BRIDGE_DIGITS: usize = 8;

/// The folder of a state folder's log.
pub fn folder_in(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER)
}

/// One file of lines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Part {
    pub(super) bridge: String,
    /// From 1.
    pub(super) number: u32,
}

impl Part {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".jsonl")?;
        let (bridge, number) = match stem.split_once('.') {
            None => (stem, 1),
            Some((bridge, number)) => (bridge, number.parse().ok().filter(|number| *number > 1)?),
        };
        let part = is_bridge(bridge).then(|| Self { bridge: bridge.into(), number })?;
        (part.file() == name).then_some(part)
    }

    fn stem(&self) -> String {
        match self.number {
            1 => self.bridge.clone(),
            number => format!("{}.{number}", self.bridge),
        }
    }

    pub(super) fn file(&self) -> String {
        format!("{}.jsonl", self.stem())
    }

    pub(super) fn blobs(&self) -> String {
        format!("{}.blobs", self.stem())
    }

    pub(super) fn next(&self) -> Self {
        Self { bridge: self.bridge.clone(), number: self.number + 1 }
    }
}

/// Whether a text can be the name of a bridge.
pub(super) fn is_bridge(text: &str) -> bool {
    text.len() == BRIDGE_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(super) fn head_of(bridge: &str) -> String {
    format!("{bridge}.head")
}

/// Returns the bridge of a file with a head.
pub(super) fn bridge_of_head(name: &str) -> Option<&str> {
    name.strip_suffix(".head").filter(|bridge| is_bridge(bridge))
}

/// Makes the folder if it is missing, and checks that only this user can write it.
pub(super) fn ensure(folder: &Path) -> Result<(), AuditError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(AuditError::io(folder))?;
    let metadata = fs::symlink_metadata(folder).map_err(AuditError::io(folder))?;
    if !metadata.is_dir() {
        return Err(AuditError::io(folder)(io::ErrorKind::NotADirectory.into()));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(AuditError::Foreign(folder.to_path_buf()));
    }
    match metadata.mode() & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(AuditError::Open(folder.to_path_buf())),
    }
}

/// Makes a file that must not be there yet.
pub(super) fn create_new(path: &Path, appends: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).create_new(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    if appends {
        options.append(true);
    } else {
        options.write(true);
    }
    options.open(path)
}

/// Returns the names in the folder; none if there is no folder.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Returns the files of lines in the folder, those of a bridge in their order.
pub(super) fn parts(names: &[String]) -> Vec<Part> {
    let mut parts: Vec<Part> = names.iter().filter_map(|name| Part::parse(name)).collect();
    parts.sort();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_read_as_they_are_written() {
        for name in ["3fa9c1d2.jsonl", "3fa9c1d2.2.jsonl", "3fa9c1d2.10.jsonl"] {
            assert_eq!(Part::parse(name).unwrap().file(), name);
        }
        for name in
            ["3fa9c1d2.1.jsonl", "3fa9c1d2.02.jsonl", "3fa9c1.jsonl", "x.jsonl", "3fa9c1d2", "..jsonl"]
        {
            assert_eq!(Part::parse(name), None, "{name}");
        }
        let names = ["3fa9c1d2.10.jsonl", "3fa9c1d2.2.jsonl", "3fa9c1d2.jsonl"].map(String::from);
        assert_eq!(parts(&names).iter().map(|part| part.number).collect::<Vec<_>>(), [1, 2, 10]);
    }
}
