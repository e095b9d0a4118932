//! A folder to unpack into, between files that must stay as they are.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::UnpackError;
use super::layer::{Limits, Unpacker};
use crate::digest::Digest;

pub(super) const LIMITS: Limits = Limits { bytes: 64 << 20, entries: 10_000 };

/// A root, and files beside it that must not change.
pub(super) struct StagingFolder {
    dir: tempfile::TempDir,
    before: Vec<(PathBuf, u64, i64, i64, u32, Vec<u8>)>,
}

impl StagingFolder {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["root", "beside", "beside/inner"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("beside/file"), "untouched").unwrap();
        let mut staging = Self { dir, before: Vec::new() };
        staging.before = staging.outside();
        staging
    }

    pub(super) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(super) fn beside(&self) -> String {
        self.dir.path().join("beside").to_str().unwrap().to_string()
    }

    /// Lists everything outside the root, with what a change would show in.
    pub(super) fn outside(&self) -> Vec<(PathBuf, u64, i64, i64, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut todo = vec![self.dir.path().to_path_buf()];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if path == self.root() {
                    continue;
                }
                if meta.is_dir() {
                    todo.push(path.clone());
                }
                let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                found.push((path, meta.nlink(), meta.mtime(), meta.ctime(), meta.mode(), content));
            }
        }
        found.sort();
        found
    }

    pub(super) fn unpack(&self, layers: &[&[u8]], diff_id: Option<&Digest>) -> Result<(), UnpackError> {
        let mut unpacker = Unpacker::new(&self.root(), LIMITS)?;
        for layer in layers {
            unpacker.apply(*layer, diff_id, &AtomicBool::new(false))?;
        }
        unpacker.finish().map(drop)
    }

    #[track_caller]
    pub(super) fn assert_untouched(&self) {
        assert_eq!(self.outside(), self.before, "something outside was touched");
    }
}
