//! The image that each name stands for since it was pulled last.

use std::fs;

use serde::{Deserialize, Serialize};

use super::folders::{ImageId, entries, write_whole};
use super::lock::{Kind, Lock};
use super::{Store, StoreError};
use crate::digest::Digest;

/// A name and its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The full name.
    pub(crate) name: String,
    /// The digest of the manifest, if the image has one.
    pub(crate) manifest: Option<Digest>,
    /// The id of the image.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) fetched: u64,
}

impl Store {
    /// Returns the image that a name stands for.
    pub(crate) fn named(&self, name: &str) -> Option<(ImageId, Named)> {
        let text = fs::read(self.folders.name(name, "json")).ok()?;
        let named: Named = serde_json::from_slice(&text).ok()?;
        // The name of the file is only a part of a hash.
        if named.name == name { Some((named.id.parse().ok()?, named)) } else { None }
    }

    /// Lets a name stand for this image from now on.
    pub(crate) fn set_name(
        &self,
        name: &str,
        id: &ImageId,
        manifest: Option<Digest>,
    ) -> Result<(), StoreError> {
        let named = Named { name: name.into(), manifest, id: id.to_string(), fetched: super::now() };
        let text = serde_json::to_vec_pretty(&named).unwrap_or_default();
        write_whole(&self.folders.name(name, "json"), &text)
    }

    /// Waits until no other process pulls this name.
    pub(crate) async fn lock_name(&self, name: &str, waiting: impl FnOnce()) -> Result<Lock, StoreError> {
        self.folders.make()?;
        let path = self.folders.name(name, "lock");
        Lock::take(&path, Kind::Exclusive, waiting).await.map_err(StoreError::io("lock", &path))
    }

    /// Returns all names.
    pub(super) fn all_names(&self) -> Result<Vec<Named>, StoreError> {
        let mut names = Vec::new();
        for entry in entries(&self.folders.names())? {
            if entry.path().extension().is_some_and(|ending| ending == "json")
                && let Ok(text) = fs::read(entry.path())
                && let Ok(named) = serde_json::from_slice::<Named>(&text)
            {
                names.push(named);
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }
}
