//! What the entries of a layer mean (<https://github.com/opencontainers/image-spec/blob/main/layer.md>).

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustix::fs::{FileType, XattrFlags};

use super::decode::with_decoded;
use super::error::{UnpackError, refused, shown};
use super::tar::{Entry, Kind, Source, TarStream};
use super::tree::{Key, Missing, Tree, times};
use crate::digest::Digest;

const WHITEOUT: &[u8] = b".wh.";
/// Other names with this prefix are private to AUFS.
const WHITEOUT_NOTE: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The user of sandboxes: what it may read as the owner in an image has to be readable here.
const NOBODY: u64 = 65534;
/// Extended attributes of one file; others are dropped.
const XATTR_LIMIT: usize = 64;

/// The limits of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of archives, and bytes of files with their holes.
    pub(crate) bytes: u64,
    /// Files, folders and links.
    pub(crate) entries: u64,
}

impl Limits {
    /// More than the largest images of machine learning have.
    const ENTRIES: u64 = 2_000_000;
    /// For any image, however small it is compressed.
    const BASE: u64 = 512 << 20;
    /// Real layers compress to a half or a tenth; those with nothing but logs to a fiftieth.
    const RATIO: u64 = 100;
    const MOST: u64 = 64 << 30;

    /// Returns the limits for an image whose compressed layers have this many bytes.
    pub(crate) fn of_compressed(bytes: u64) -> Self {
        let bytes = bytes.saturating_mul(Self::RATIO).saturating_add(Self::BASE).min(Self::MOST);
        Self { bytes, entries: Self::ENTRIES }
    }

    /// Returns the limits for an image of unknown size.
    pub(crate) fn of_unknown() -> Self {
        Self { bytes: Self::MOST, entries: Self::ENTRIES }
    }
}

/// The size of an unpacked image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Bytes of files.
    pub(crate) bytes: u64,
    /// Files, folders and links.
    pub(crate) entries: u64,
}

/// Unpacks layers into a folder, in order.
pub(crate) struct Unpacker {
    tree: Tree,
    limits: Limits,
    /// Bytes of archives so far.
    read: u64,
    done: Unpacked,
    /// What the current layer wrote, and the folders on the way to it.
    written: HashSet<Key>,
    traversed: HashSet<Key>,
    /// Modification times of folders, set at the end because every new entry changes them.
    times: Vec<(Vec<u8>, i64)>,
}

impl Unpacker {
    /// Returns an unpacker into this folder, which has to be empty and unused.
    pub(crate) fn new(folder: &Path, limits: Limits) -> Result<Self, UnpackError> {
        let tree = Tree::open(folder).map_err(|source| UnpackError::Write { entry: "/".into(), source })?;
        Ok(Self {
            tree,
            limits,
            read: 0,
            done: Unpacked::default(),
            written: HashSet::new(),
            traversed: HashSet::new(),
            times: Vec::new(),
        })
    }

    /// Unpacks one layer over those before.
    ///
    /// With a digest, the uncompressed layer has to match it; without one, the archive has to have its end mark, which
    /// shows that it is complete.
    pub(crate) fn apply(
        &mut self,
        layer: impl Read + Send,
        diff_id: Option<&Digest>,
        cancelled: &AtomicBool,
    ) -> Result<(), UnpackError> {
        self.written.clear();
        self.traversed.clear();
        let left = self.limits.bytes.saturating_sub(self.read);
        let read = with_decoded(layer, diff_id, left, cancelled, |pipe| {
            let mut stream = TarStream::new(&mut *pipe);
            while let Some(entry) = stream.next()? {
                self.entry(&entry, &mut stream)?;
            }
            if diff_id.is_none() && !stream.complete {
                return Err(UnpackError::Malformed("it has no end mark and may be incomplete".into()));
            }
            stream.drain()?;
            Ok(pipe.passed())
        })?;
        self.read += read;
        Ok(())
    }

    /// Sets the modification times of folders.
    pub(crate) fn finish(mut self) -> Result<Unpacked, UnpackError> {
        // Sorted, so that neighbours share their path; the last time of a folder counts.
        let mut folders = std::mem::take(&mut self.times);
        folders.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, seconds) in folders {
            // Without following links: a later layer may have replaced a folder by one.
            if self.tree.locate_again(&path)? {
                self.tree.set_time(b".", seconds);
            }
        }
        Ok(self.done)
    }

    fn entry<R: Source>(&mut self, entry: &Entry, stream: &mut TarStream<R>) -> Result<(), UnpackError> {
        self.count(entry)?;
        let path = entry.path.as_slice();
        let base = base_name(path);
        if base.starts_with(WHITEOUT) && !matches!(entry.kind, Kind::Folder) {
            return self.whiteout(path, base);
        }
        if entry.kind == Kind::Other {
            // Its path is checked like any other.
            return self.tree.locate(path, Missing::Report).map(drop);
        }
        if entry.kind == Kind::HardLink {
            let place = self.tree.create_hard_link(path, &entry.link)?;
            return self.note(place.key, path);
        }
        let Some(place) = self.tree.locate(path, Missing::Create)? else {
            // The root itself keeps its permissions.
            return match entry.kind {
                Kind::Folder => {
                    self.times.push((Vec::new(), entry.mtime));
                    Ok(())
                }
                _ => Err(refused(path, "it has no name")),
            };
        };
        match entry.kind {
            Kind::Folder => {
                self.tree.create_folder(&place.name, permissions(entry) | 0o700, path)?;
                self.times.push((self.tree.path_of(&place.name), entry.mtime));
                self.mark_open();
                // A folder may come twice.
                self.written.insert(place.key);
                return Ok(());
            }
            Kind::SymbolicLink => {
                if entry.link.is_empty() {
                    return Err(refused(path, "it is a link without a target"));
                }
                self.tree.create_symlink(&place.name, &entry.link, path)?;
                self.tree.set_time(&place.name, entry.mtime);
            }
            Kind::File | Kind::HardLink | Kind::Other => self.file(entry, &place.name, stream)?,
        }
        self.note(place.key, path)
    }

    fn count(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        self.done.entries += 1;
        if self.done.entries > self.limits.entries {
            return Err(UnpackError::TooBig { what: "files", limit: self.limits.entries });
        }
        // Before it is written.
        if entry.kind == Kind::File {
            self.done.bytes = self.done.bytes.saturating_add(entry.size());
            if self.done.bytes > self.limits.bytes {
                return Err(UnpackError::TooBig { what: "bytes", limit: self.limits.bytes });
            }
        }
        Ok(())
    }

    /// Marks a name as written; twice in a layer is an error, because readers differ in which one they keep.
    fn note(&mut self, key: Key, path: &[u8]) -> Result<(), UnpackError> {
        self.mark_open();
        if self.written.insert(key) {
            return Ok(());
        }
        Err(refused(path, "it comes twice"))
    }

    fn mark_open(&mut self) {
        // The innermost is last; once it is marked, so are those above.
        if let Some(last) = self.tree.keys_of_open().last()
            && self.traversed.insert(last)
        {
            self.traversed.extend(self.tree.keys_of_open());
        }
    }

    fn file<R: Source>(
        &mut self,
        entry: &Entry,
        name: &[u8],
        stream: &mut TarStream<R>,
    ) -> Result<(), UnpackError> {
        let error = |source| UnpackError::Write { entry: shown(&entry.path), source };
        let mut file = self.tree.create_file(name, permissions(entry), &entry.path)?;
        match &entry.sparse {
            None => copy(stream, &mut file, entry.stored, entry)?,
            Some(sparse) => {
                for segment in &sparse.segments {
                    file.seek(SeekFrom::Start(segment.offset)).map_err(error)?;
                    copy(stream, &mut file, segment.length, entry)?;
                }
                file.set_len(sparse.size).map_err(error)?;
            }
        }
        for (name, value) in
            entry.xattrs.iter().take(XATTR_LIMIT).filter(|(name, _)| name.starts_with(b"user."))
        {
            // Not every file system supports them.
            let _ = rustix::fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty());
        }
        // Python compares the time of a source with its compiled module.
        rustix::fs::futimens(&file, &times(entry.mtime)).map_err(|errno| error(errno.into()))
    }

    fn whiteout(&mut self, path: &[u8], base: &[u8]) -> Result<(), UnpackError> {
        let error = |why| refused(path, why);
        let hidden = &base[WHITEOUT.len()..];
        if base == OPAQUE {
            // The folder may only exist in this layer.
            if self.tree.locate(path, Missing::Create)?.is_some() {
                self.mark_open();
                self.clear_open(path)?;
            }
            return Ok(());
        }
        if base.starts_with(WHITEOUT_NOTE) {
            return self.tree.locate(path, Missing::Report).map(drop);
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(error("it would remove its own folder or the one above"));
        }
        let target = [&path[..path.len() - base.len()], hidden].concat();
        match self.tree.locate(&target, Missing::Report)? {
            Some(place) => self.hide(&place.name, place.key, path),
            None => Ok(()),
        }
    }

    /// Removes what earlier layers wrote under this name in the open folder, and keeps what this one wrote.
    fn hide(&mut self, name: &[u8], key: Key, path: &[u8]) -> Result<(), UnpackError> {
        let (ours, traversed) = (self.written.contains(&key), self.traversed.contains(&key));
        match self.tree.kind(name, path)? {
            Some(FileType::Directory) if ours || traversed => {
                if self.tree.descend(name, path)? {
                    self.clear_open(path)?;
                    self.tree.ascend();
                }
                Ok(())
            }
            Some(_) if ours => Ok(()),
            Some(_) => self.tree.remove(name, path),
            None => Ok(()),
        }
    }

    fn clear_open(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        for name in self.tree.names(path)? {
            let key = self.tree.key_of(&name);
            self.hide(&name, key, path)?;
        }
        Ok(())
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Returns permissions that let only the owner write, without set-id and sticky bits.
fn permissions(entry: &Entry) -> u32 {
    let mut mode = entry.mode & 0o777;
    // The files get another owner, so the user of sandboxes is one of the others.
    if entry.uid == NOBODY {
        mode |= mode >> 6 & 0o5;
    }
    if entry.gid == NOBODY {
        mode |= mode >> 3 & 0o5;
    }
    mode & 0o755
}

pub(super) fn copy<R: Source>(
    stream: &mut TarStream<R>,
    file: &mut File,
    mut count: u64,
    entry: &Entry,
) -> Result<(), UnpackError> {
    while count > 0 {
        let data = stream.data(count)?;
        if data.is_empty() {
            return Err(UnpackError::Malformed("it ends in the middle of a file".into()));
        }
        file.write_all(data).map_err(|source| UnpackError::Write { entry: shown(&entry.path), source })?;
        let written = data.len();
        stream.consume(written);
        count -= written as u64;
    }
    Ok(())
}
