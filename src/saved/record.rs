//! What is known of the current version of a function, in `about.json` beside the earlier ones.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::details::Details;

/// Bytes of a file; none that we wrote is longer.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    pub(super) version: u32,
    /// The source that all of this is about.
    pub(super) sha256: String,
    pub(super) details: Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) example: Option<String>,
    /// The source that the person has approved, of a function that was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approved: Option<String>,
    /// The schemas of the tools that the function names, as they were when it was saved or tested.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) schemas: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tested: Option<Tested>,
}

/// How the example of a function ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tested {
    pub at: Timestamp,
    /// None if it has passed.
    pub error: Option<String>,
    /// The source of the function.
    #[serde(rename = "sha256")]
    pub(super) source: String,
}

/// What comes with the source of a function.
#[derive(Debug, Clone, Default)]
pub struct NewTool {
    pub details: Details,
    /// Code that shows whether the function works.
    pub example: Option<String>,
    /// Digests of the schemas of the tools that it names, by `SERVER.TOOL`.
    pub schemas: BTreeMap<String, String>,
    /// Whether somebody else wrote it, and the person has approved this source.
    pub is_imported: bool,
}

/// The file is not one of ours.
#[derive(Debug)]
pub(super) struct Damaged;

impl Record {
    pub(super) fn of(version: u32, source: &str, new: NewTool) -> Self {
        let NewTool { details, example, schemas, is_imported } = new;
        let sha256 = digest(source.as_bytes());
        let approved = is_imported.then(|| sha256.clone());
        Self { version, sha256, details, example, approved, schemas, tested: None }
    }

    /// Keeps what was known of the same source: that it was imported, and how the same example ended.
    pub(super) fn after(mut self, before: Option<Self>) -> Self {
        let Some(before) = before.filter(|before| before.sha256 == self.sha256) else { return self };
        self.approved = self.approved.or(before.approved);
        if before.example.is_some() && before.example == self.example {
            self.schemas.extend(before.schemas);
            self.tested = before.tested;
        }
        self
    }

    /// Reads a record; None if there is none.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, Damaged> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|_| Damaged)?,
        };
        let mut json = Vec::new();
        let read = file.take(LONGEST + 1).read_to_end(&mut json);
        match read {
            Ok(size) if size as u64 <= LONGEST => {
                serde_json::from_slice(&json).map(Some).map_err(|_| Damaged)
            }
            _ => Err(Damaged),
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // All of it is text and numbers.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

/// Returns the digest by which a source is known.
pub(super) fn digest(source: &[u8]) -> String {
    hex::encode(Sha256::digest(source))
}
