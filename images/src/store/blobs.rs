//! Verified content by its digest.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::folders::{Folders, write_whole};
use super::lock::{Kind, Lock};
use super::{Store, StoreError};
use crate::digest::{Digest, Hasher};
use crate::manifest::Descriptor;

impl Store {
    /// Returns whether the store has this content, with the size that it should have.
    pub(crate) fn has_blob(&self, blob: &Descriptor) -> bool {
        fs::metadata(self.folders.blob(&blob.digest))
            .is_ok_and(|meta| meta.is_file() && meta.len() == blob.size)
    }

    /// Removes content that does not match its digest any more; returns whether there was any.
    pub(crate) async fn remove_damaged(&self, blobs: &[Descriptor]) -> Result<bool, StoreError> {
        let (store, blobs) = (self.clone(), blobs.to_vec());
        let looking = tokio::task::spawn_blocking(move || {
            let mut any = false;
            for blob in blobs.iter().filter(|blob| store.has_blob(blob)) {
                let path = store.folders.blob(&blob.digest);
                let mut file = File::open(&path).map_err(StoreError::io("open", &path))?;
                let mut hasher = blob.digest.hasher();
                let mut chunk = vec![0; 1 << 20];
                loop {
                    match file.read(&mut chunk).map_err(StoreError::io("read", &path))? {
                        0 => break,
                        count => hasher.update(&chunk[..count]),
                    }
                }
                if hasher.finish() != blob.digest {
                    tracing::warn!(blob = %blob.digest, "damaged content in the store: it is downloaded again");
                    fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
                    any = true;
                }
            }
            Ok(any)
        });
        looking.await.unwrap_or(Ok(false))
    }

    /// Opens a layer.
    pub(crate) fn open_layer(&self, digest: &Digest) -> Result<File, StoreError> {
        self.open_blob(digest)?.ok_or_else(|| StoreError::Unknown(digest.to_string()))
    }

    /// Opens content; None when the store does not have it.
    pub(crate) fn open_blob(&self, digest: &Digest) -> Result<Option<File>, StoreError> {
        let path = self.folders.blob(digest);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("open", &path)(error)),
        }
    }

    /// Returns small content; None when the store does not have it or it was changed.
    pub(crate) fn read_blob(&self, digest: &Digest, limit: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(file) = self.open_blob(digest)? else { return Ok(None) };
        let mut content = Vec::new();
        let error = StoreError::io("read", &self.folders.blob(digest));
        file.take(limit + 1).read_to_end(&mut content).map_err(error)?;
        Ok(Some(content).filter(|content| content.len() as u64 <= limit && digest.verifies(content)))
    }

    /// Stores small content that was verified before.
    pub(crate) fn put_blob(&self, digest: &Digest, content: &[u8]) -> Result<(), StoreError> {
        write_whole(&self.folders.blob(digest), content)
    }

    /// Starts or resumes the download of content; None while another process downloads it.
    pub(crate) fn try_receive(&self, blob: &Descriptor) -> Result<Option<Receiving>, StoreError> {
        Receiving::begin(&self.folders, blob)
    }
}

/// A download of content.
pub(crate) struct Receiving {
    file: File,
    hasher: Hasher,
    received: u64,
    blob: Descriptor,
    path: PathBuf,
    place: PathBuf,
    _lock: Lock,
}

impl Receiving {
    fn begin(folders: &Folders, blob: &Descriptor) -> Result<Option<Self>, StoreError> {
        let path = folders.partial_of(&blob.digest);
        let lock_path = path.with_extension("lock");
        let lock = Lock::try_take(&lock_path, Kind::Exclusive).map_err(StoreError::io("lock", &lock_path))?;
        let Some(lock) = lock else { return Ok(None) };
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(StoreError::io("open", &path))?;
        let mut receiving = Self {
            file,
            hasher: blob.digest.hasher(),
            received: 0,
            blob: blob.clone(),
            place: folders.blob(&blob.digest),
            path,
            _lock: lock,
        };
        receiving.resume()?;
        Ok(Some(receiving))
    }

    /// Continues after what an earlier attempt left. The digest of the whole tells whether that was right.
    fn resume(&mut self) -> Result<(), StoreError> {
        let mut chunk = vec![0; 128 << 10];
        loop {
            let count = self.file.read(&mut chunk).map_err(StoreError::io("read", &self.path))?;
            if count == 0 {
                break;
            }
            self.hasher.update(&chunk[..count]);
            self.received += count as u64;
        }
        if self.received > self.blob.size { self.start_over() } else { Ok(()) }
    }

    /// Returns the number of bytes so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.received == self.blob.size
    }

    /// Discards all bytes so far.
    pub(crate) fn start_over(&mut self) -> Result<(), StoreError> {
        self.file.set_len(0).map_err(StoreError::io("truncate", &self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(StoreError::io("rewind", &self.path))?;
        self.hasher = self.blob.digest.hasher();
        self.received = 0;
        Ok(())
    }

    /// Adds bytes; more than the content should have are an error.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let received = self.received + bytes.len() as u64;
        if received > self.blob.size {
            let (digest, expected) = (self.blob.digest.clone(), self.blob.size);
            return Err(StoreError::WrongSize { digest, expected, actual: received });
        }
        self.file.write_all(bytes).map_err(StoreError::io("write", &self.path))?;
        self.hasher.update(bytes);
        self.received = received;
        Ok(())
    }

    /// Moves the content to its place if it matches its digest, and removes it if not.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        let actual = self.hasher.clone().finish();
        if actual != self.blob.digest {
            self.discard()?;
            return Err(StoreError::WrongDigest { expected: self.blob.digest.clone(), actual });
        }
        self.file.sync_all().map_err(StoreError::io("write", &self.path))?;
        fs::rename(&self.path, &self.place).map_err(StoreError::io("rename a file to", &self.place))?;
        let _ = fs::remove_file(self.path.with_extension("lock"));
        Ok(())
    }

    /// Removes the downloaded bytes.
    pub(crate) fn discard(&self) -> Result<(), StoreError> {
        super::folders::remove(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(content: &[u8]) -> Descriptor {
        Descriptor {
            media_type: String::new(),
            digest: Digest::of(content),
            size: content.len() as u64,
            platform: None,
            annotations: Default::default(),
        }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        store.folders.make().unwrap();
        (dir, store)
    }

    #[test]
    fn content_arrives_in_parts_and_over_several_attempts() {
        let (_dir, store) = store();
        let blob = descriptor(b"one two three");
        let mut first = store.try_receive(&blob).unwrap().unwrap();
        first.write(b"one ").unwrap();
        assert!(store.try_receive(&blob).unwrap().is_none(), "two at once");
        drop(first);
        let mut second = store.try_receive(&blob).unwrap().unwrap();
        assert_eq!(second.received(), 4);
        second.write(b"two three").unwrap();
        assert!(second.is_complete());
        second.finish().unwrap();
        assert!(store.has_blob(&blob));
        assert_eq!(store.read_blob(&blob.digest, 100).unwrap().unwrap(), b"one two three");
        assert_eq!(store.read_blob(&blob.digest, 5).unwrap(), None, "larger than the limit");
        assert_eq!(fs::read_dir(store.folders.partial()).unwrap().count(), 0);
    }

    #[test]
    fn content_that_does_not_match_its_digest_or_size_is_discarded() {
        let (_dir, store) = store();
        let blob = descriptor(b"right");
        let mut receiving = store.try_receive(&blob).unwrap().unwrap();
        receiving.write(b"wrong").unwrap();
        assert!(matches!(receiving.finish(), Err(StoreError::WrongDigest { .. })));
        let mut receiving = store.try_receive(&blob).unwrap().unwrap();
        assert_eq!(receiving.received(), 0);
        assert!(matches!(receiving.write(b"right and more"), Err(StoreError::WrongSize { .. })));
        assert!(!store.has_blob(&blob));
    }

    #[test]
    fn content_that_changed_on_disk_is_not_returned() {
        let (_dir, store) = store();
        let blob = descriptor(b"content");
        store.put_blob(&blob.digest, b"content").unwrap();
        fs::write(store.folders.blob(&blob.digest), "CONTENT").unwrap();
        assert_eq!(store.read_blob(&blob.digest, 100).unwrap(), None);
    }
}
