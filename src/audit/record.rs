//! A line that is read.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::blobs;
use super::event::Pruned;
use super::folder::Part;

/// A line of the log. What it does not have is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Record {
    pub n: u64,
    pub time: Option<Timestamp>,
    pub event: String,
    pub prev: String,
    pub bridge: Option<String>,
    pub part: Option<u32>,
    pub run: Option<String>,
    pub session: Option<String>,
    pub client: Option<String>,
    pub principal: Option<String>,
    pub runtime: Option<String>,
    pub image: Option<String>,
    pub image_digest: Option<String>,
    pub code_sha256: Option<String>,
    pub servers: Vec<String>,
    pub new_session: bool,
    pub timeout_seconds: f64,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub called_as: Option<String>,
    pub verdict: Option<String>,
    pub rule: Option<String>,
    pub kind: Option<String>,
    pub name: Option<String>,
    pub answer: Option<String>,
    pub by: Option<String>,
    pub outcome: Option<String>,
    pub exit_code: Option<i32>,
    pub error: Option<String>,
    pub milliseconds: Option<f64>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub calls: u64,
    pub refused: u64,
    pub sent: u64,
    pub received: Option<u64>,
    pub lines: u64,
    pub why: Option<String>,
    pub files: Vec<Pruned>,
    pub code: Option<String>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    pub message: Option<String>,
    pub arguments: Option<Box<RawValue>>,
    pub result: Option<Box<RawValue>>,
    pub blobs: BTreeMap<String, Blob>,
    /// Texts for which there was no space.
    pub left_out: Vec<String>,
}

/// A text beside the lines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Blob {
    pub sha256: String,
    pub bytes: u64,
}

/// A line, and where it is.
#[derive(Debug)]
pub struct Found {
    pub(super) part: Part,
    pub text: String,
    pub record: Record,
}

impl Found {
    /// Returns the bridge that wrote it.
    pub fn bridge(&self) -> &str {
        &self.part.bridge
    }

    /// Returns a text of the line, wherever it is; None if it was not recorded.
    ///
    /// # Errors
    /// It is lost or was changed.
    pub fn text_of(&self, folder: &Path, field: &str) -> Result<Option<String>, String> {
        let record = &self.record;
        if let Some(Blob { sha256, bytes }) = record.blobs.get(field) {
            let bytes = blobs::read(&folder.join(self.part.blobs()), sha256, *bytes)?;
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
        let raw = |raw: &Option<Box<RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
        Ok(match field {
            "code" => record.code.clone(),
            "stdout" => record.stdout.clone(),
            "stderr" => record.stderr.clone(),
            "message" => record.message.clone(),
            "arguments" => raw(&record.arguments),
            "result" => raw(&record.result),
            _ => None,
        })
    }
}
