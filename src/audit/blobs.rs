//! Texts that are too long for a line.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::folder::create_new;
use super::line::{Stored, digest};

/// Bytes of one text, and of all texts beside one file of lines.
pub(super) const LARGEST: usize = 16 << 20;
pub(super) const MOST: u64 = 48 << 20;

/// The texts beside one file of lines.
#[derive(Debug)]
pub(super) struct Blobs {
    folder: PathBuf,
    kept: HashSet<String>,
    pub(super) bytes: u64,
}

impl Blobs {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder, kept: HashSet::new(), bytes: 0 }
    }

    /// Keeps a text, if there is space for it.
    pub(super) fn keep(&mut self, text: &str) -> Stored {
        let size = text.len() as u64;
        if text.len() > LARGEST || self.bytes + size > MOST {
            return Stored::LeftOut;
        }
        let name = digest(text.as_bytes());
        if !self.kept.contains(&name) {
            if let Err(error) = self.write(&name, text.as_bytes()) {
                tracing::warn!(%error, folder = %self.folder.display(), "could not keep a text of the audit log");
                // Half of it would count as changed.
                let _ = fs::remove_file(self.folder.join(&name));
                return Stored::LeftOut;
            }
            self.bytes += size;
            self.kept.insert(name.clone());
        }
        Stored::Blob(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if self.kept.is_empty() {
            match DirBuilder::new().mode(0o700).create(&self.folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        create_new(&self.folder.join(name), false)?.write_all(bytes)
    }
}

/// Reads a text, and checks that it is what was kept.
pub(super) fn read(folder: &Path, sha256: &str, bytes: u64) -> Result<Vec<u8>, String> {
    use std::io::Read;
    if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("its name is no SHA-256".into());
    }
    let file = fs::File::open(folder.join(sha256)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "it is missing".to_owned(),
        _ => error.to_string(),
    })?;
    let mut text = Vec::new();
    file.take(LARGEST as u64 + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 == bytes && digest(&text) == sha256 {
        true => Ok(text),
        false => Err("it was changed".into()),
    }
}
