//! The files of the catalogue: one for each definition, shared by all bridges of a user.
//!
//! Files are written under another name and renamed, so that readers see the old or the new one. There are no locks: the
//! last writer wins, and all write the same.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::disk::{SEEN, Stamp, UNFINISHED, VECTORS, replace};
use super::file;
use super::server_docs::ServerDocs;
use crate::sizes::{Amount, disk_usage};

const SUFFIX: &str = ".docs";
/// An unfinished file of this age was left by a bridge that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);
const A_DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer keys have no file.
const LONGEST_NAME: usize = 200;

#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the file of a key; None if the key is too long or empty.
    pub(super) fn path(&self, key: &str) -> Option<PathBuf> {
        let mut name = String::new();
        for byte in key.bytes() {
            match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => name.push(char::from(byte)),
                other => name.push_str(&format!("%{other:02x}")),
            }
        }
        (!name.is_empty() && name.len() <= LONGEST_NAME).then(|| self.folder.join(name + SUFFIX))
    }

    /// Returns the stamp of a file; None if there is no file.
    pub(super) fn stamp(&self, key: &str) -> Option<Stamp> {
        Stamp::at(&self.path(key)?)
    }

    /// Reads a file; None if there is no file or it is unreadable.
    pub(super) fn read(&self, key: &str) -> Option<(Stamp, Option<ServerDocs>)> {
        let path = self.path(key)?;
        let read = || -> io::Result<(Stamp, Vec<u8>)> {
            let file = File::open(&path)?;
            let stamp = Stamp::of(&file.metadata()?);
            let mut bytes = Vec::with_capacity(stamp.size.min(file::LARGEST) as usize);
            file.take(file::LARGEST + 1).read_to_end(&mut bytes)?;
            Ok((stamp, bytes))
        };
        match read() {
            Ok((stamp, bytes)) => {
                let docs = file::decode(key, &bytes);
                if docs.is_none() {
                    tracing::debug!(path = %path.display(), "cached tool documentation is damaged or of another version; asking the server again");
                }
                Some((stamp, docs))
            }
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "could not read cached tool documentation");
                }
                None
            }
        }
    }

    /// Writes documentation, unless the file contains it already.
    pub(super) fn write(&self, key: &str, docs: &ServerDocs) -> io::Result<Stamp> {
        let path = self.path(key).ok_or_else(|| io::Error::other("the key is too long for a file name"))?;
        let bytes = file::encode(key, docs).ok_or_else(|| io::Error::other("it is too large"))?;
        if let Ok(old) = fs::read(&path)
            && old == bytes
        {
            // Its age says when it was last used. Not each time: others would read it again.
            let file = File::options().write(true).open(&path)?;
            if file.metadata()?.modified()?.elapsed().is_ok_and(|age| age > A_DAY) {
                file.set_modified(SystemTime::now())?;
            }
            return fs::metadata(&path).map(|metadata| Stamp::of(&metadata));
        }
        replace(&path, &bytes)?.metadata().map(|metadata| Stamp::of(&metadata))
    }

    /// Removes the oldest files beyond `most` except those of `keep`, and abandoned unfinished ones.
    pub(super) fn prune(&self, keep: &[PathBuf], most: usize) -> io::Result<usize> {
        let Spare { unfinished, mut files } = self.spare(keep)?;
        let mut removed = unfinished.iter().filter(|path| fs::remove_file(path).is_ok()).count();
        files.sort();
        let surplus = (files.len() + keep.len()).saturating_sub(most);
        for (_, path) in files.into_iter().take(surplus) {
            removed += usize::from(remove_file(&path).is_ok());
        }
        Ok(removed)
    }

    /// Returns what is unused: files that have not changed for so long except those of `keep`, and abandoned unfinished ones. Removes
    /// it if `remove` is set.
    pub(super) fn unused(&self, keep: &[PathBuf], age: Duration, remove: bool) -> io::Result<Amount> {
        let mut amount = Amount::default();
        let Spare { unfinished, files } = self.spare(keep)?;
        let is_old = |changed: &SystemTime| changed.elapsed().is_ok_and(|elapsed| elapsed >= age);
        let old = files.into_iter().filter(|(changed, _)| is_old(changed)).map(|(_, path)| path);
        for path in old.chain(unfinished) {
            let bytes: u64 = parts_of(&path).iter().map(|part| disk_usage(part)).sum();
            if remove {
                remove_file(&path)?;
            }
            amount += Amount { count: 1, bytes };
        }
        Ok(amount)
    }

    /// Returns the files except those of `keep`, and abandoned unfinished ones.
    fn spare(&self, keep: &[PathBuf]) -> io::Result<Spare> {
        let mut spare = Spare::default();
        for entry in fs::read_dir(&self.folder)? {
            let (path, metadata) = match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
                Ok((path, metadata)) if metadata.is_file() => (path, metadata),
                // It was removed meanwhile, or is not a file.
                _ => continue,
            };
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let changed = metadata.modified()?;
            if name.starts_with(UNFINISHED) {
                if changed.elapsed().is_ok_and(|age| age > ABANDONED) {
                    spare.unfinished.push(path);
                }
            } else if name.ends_with(SUFFIX) && !keep.contains(&path) {
                spare.files.push((changed, path));
            }
        }
        Ok(spare)
    }
}

/// What may be removed.
#[derive(Debug, Default)]
struct Spare {
    unfinished: Vec<PathBuf>,
    files: Vec<(SystemTime, PathBuf)>,
}

/// Returns a file with what was learned of its tools.
fn parts_of(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), path.with_extension(SEEN), path.with_extension(VECTORS)]
}

/// Removes a file with what was learned of its tools.
fn remove_file(path: &Path) -> io::Result<()> {
    let [path, more @ ..] = parts_of(path);
    for part in more {
        let _ = fs::remove_file(part);
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tool_doc::About;
    use crate::upstream::tool_doc::ToolDoc;

    fn docs(name: &str) -> ServerDocs {
        ServerDocs::new(About::default(), vec![ToolDoc { name: name.into(), ..ToolDoc::default() }])
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("catalog"));
        (folder, store)
    }

    fn files(store: &Store) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(store.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_written_is_read() {
        let (_folder, store) = store();
        assert!(store.read("k").is_none() && store.stamp("k").is_none());
        let stamp = store.write("k", &docs("a")).unwrap();
        assert_eq!(store.stamp("k"), Some(stamp));
        let (read_stamp, read) = store.read("k").unwrap();
        assert_eq!(read_stamp, stamp);
        assert_eq!(read.unwrap().tools(), docs("a").tools());
        assert_eq!(files(&store), ["k.docs"]);
    }

    #[test]
    fn the_same_content_is_not_written_again() {
        let (_folder, store) = store();
        let first = store.write("k", &docs("a")).unwrap();
        assert_eq!(store.write("k", &docs("a")).unwrap(), first);
        assert_ne!(store.write("k", &docs("b")).unwrap(), first);
    }

    #[test]
    fn any_text_is_a_key() {
        let (_folder, store) = store();
        for key in ["../../x", "a/b", ".", "ß", "a%2fb", "\0"] {
            store.write(key, &docs("a")).unwrap();
            assert!(store.read(key).is_some_and(|(_, docs)| docs.is_some()), "{key}");
        }
        assert_eq!(files(&store).len(), 6);
        assert!(store.path("").is_none() && store.path(&"k".repeat(300)).is_none());
        assert!(store.write(&"k".repeat(300), &docs("a")).is_err());
    }

    #[test]
    fn a_damaged_file_is_no_documentation_until_it_is_written_again() {
        let (_folder, store) = store();
        store.write("k", &docs("a")).unwrap();
        let path = store.path("k").unwrap();
        for content in [&b""[..], b"cbdocs", b"{}", &[0xff; 5000]] {
            fs::write(&path, content).unwrap();
            assert!(store.read("k").is_some_and(|(_, docs)| docs.is_none()));
        }
        store.write("k", &docs("a")).unwrap();
        assert!(store.read("k").is_some_and(|(_, docs)| docs.is_some()));
    }

    #[test]
    fn a_folder_in_place_of_a_file_is_no_documentation() {
        let (_folder, store) = store();
        fs::create_dir_all(store.path("k").unwrap()).unwrap();
        assert!(store.stamp("k").is_none() && store.read("k").is_none());
        assert!(store.write("k", &docs("a")).is_err());
        assert_eq!(files(&store), ["k.docs"], "nothing unfinished is left");
    }

    #[test]
    fn the_oldest_files_go_but_none_that_is_used() {
        let (_folder, store) = store();
        for (age, key) in (0..).zip(["e", "d", "c", "b", "a"]) {
            store.write(key, &docs(key)).unwrap();
            let file = File::options().write(true).open(store.path(key).unwrap()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 1000)).unwrap();
        }
        fs::write(store.folder().join("of-somebody-else"), "x").unwrap();
        let left_behind = File::create(store.folder().join(".unfinished-1")).unwrap();
        left_behind.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        fs::write(store.folder().join(".unfinished-2"), "x").unwrap();
        let keep = [store.path("a").unwrap()];
        assert_eq!(store.prune(&keep, 3).unwrap(), 3);
        assert_eq!(files(&store), [".unfinished-2", "a.docs", "d.docs", "e.docs", "of-somebody-else"]);
    }
}
