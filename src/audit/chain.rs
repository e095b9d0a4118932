//! The files of this process, and the end of its chain.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use codebridge_runtimes::random_hex;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use super::blobs::Blobs;
use super::error::AuditError;
use super::event::{Content, Contents, Event};
use super::folder::{Part, create_new, ensure, head_of};
use super::line::{NO_LINE, Stored, digest, line, prepare};

/// Bytes of a file of lines before the next is begun.
const LARGEST_PART: u64 = 16 << 20;
/// Bytes of the texts beside it, before the next is begun.
const LARGEST_BLOBS: u64 = 32 << 20;
/// Bytes of a head, always the same: it is written over in one piece.
const HEAD: usize = 256;

/// The chain of this process.
#[derive(Debug)]
pub(super) struct Chain {
    folder: PathBuf,
    part: Part,
    mode: &'static str,
    file: File,
    head: File,
    blobs: Blobs,
    /// The bytes of whole lines in the file.
    length: u64,
    /// The number and the hash of the last line.
    n: u64,
    hash: String,
    /// Lines that wait for [`Chain::write`], their hash and their number.
    waiting: Vec<u8>,
    after: (u64, String),
}

impl Chain {
    /// Begins a chain in a folder.
    pub(super) fn begin(
        folder: &Path,
        bridge: &str,
        mode: &'static str,
        time: Timestamp,
    ) -> Result<Self, AuditError> {
        ensure(folder)?;
        let part = Part { bridge: bridge.into(), number: 1 };
        let (path, head_path) = (folder.join(part.file()), folder.join(head_of(bridge)));
        let head = create_new(&head_path, false).map_err(AuditError::io(&head_path))?;
        let begin = || {
            // It is never unlocked: the lock ends with the process.
            flock(&head, FlockOperation::NonBlockingLockExclusive)?;
            head.write_all_at(&head_text(&part, 0, NO_LINE), 0)?;
            create_new(&path, true)
        };
        let file = begin().map_err(|error| {
            // An empty head would look like one whose log was removed.
            let _ = std::fs::remove_file(&head_path);
            AuditError::io(&path)(error)
        })?;
        let mut chain = Self {
            folder: folder.to_path_buf(),
            blobs: Blobs::at(folder.join(part.blobs())),
            part,
            mode,
            file,
            head,
            length: 0,
            n: 0,
            hash: NO_LINE.into(),
            waiting: Vec::new(),
            after: (0, NO_LINE.into()),
        };
        chain.open_line(time);
        Ok(chain)
    }

    /// Returns a name for a chain.
    pub(super) fn new_name() -> String {
        random_hex::<4>()
    }

    pub(super) fn part(&self) -> &Part {
        &self.part
    }

    /// Adds a line to those that wait.
    pub(super) fn add(&mut self, time: Timestamp, event: &Event, contents: Contents) {
        let Contents { texts, mask } = contents;
        let stored: Vec<(Content, Option<Stored>)> = texts
            .into_iter()
            .map(|content| {
                let (content, is_short) = prepare(content, mask.as_ref());
                let stored = (!is_short).then(|| self.blobs.keep(&content.text));
                (content, stored)
            })
            .collect();
        let (n, prev) = (self.after.0 + 1, &self.after.1);
        let line = line(n, time, event, &stored, prev);
        self.after = (n, digest(line.as_bytes()));
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
    }

    /// Writes the lines that wait.
    ///
    /// # Errors
    /// None of them is written.
    pub(super) fn write(&mut self, synced: bool) -> Result<(), AuditError> {
        let waiting = std::mem::take(&mut self.waiting);
        let written =
            self.file.write_all(&waiting).and_then(|()| if synced { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            self.after = (self.n, self.hash.clone());
            // What cannot be cut off stays behind the last whole line; the next lines go to another file.
            if self.file.set_len(self.length).is_err() && self.next_part().is_err() {
                tracing::debug!("could not begin another file of the audit log");
            }
            return Err(AuditError::io(self.path())(error));
        }
        self.length += waiting.len() as u64;
        (self.n, self.hash) = self.after.clone();
        let head = self.head.write_all_at(&head_text(&self.part, self.n, &self.hash), 0);
        // It may be behind the lines, never before them: it needs no disk of its own.
        head.map_err(AuditError::io(self.folder.join(head_of(&self.part.bridge))))
    }

    /// Whether the file is full.
    pub(super) fn is_full(&self) -> bool {
        self.length >= LARGEST_PART || self.blobs.bytes >= LARGEST_BLOBS
    }

    /// Begins the next file of the same chain.
    pub(super) fn next_part(&mut self) -> Result<(), AuditError> {
        let next = self.part.next();
        let path = self.folder.join(next.file());
        self.file = create_new(&path, true).map_err(AuditError::io(path))?;
        self.blobs = Blobs::at(self.folder.join(next.blobs()));
        (self.part, self.length) = (next, 0);
        self.open_line(Timestamp::now());
        Ok(())
    }

    /// Begins the next file if somebody has removed this one.
    pub(super) fn ensure_there(&mut self) -> Result<(), AuditError> {
        if self.is_there() {
            return Ok(());
        }
        ensure(&self.folder)?;
        let head_path = self.folder.join(head_of(&self.part.bridge));
        if !head_path.exists() {
            let make = || {
                let head = create_new(&head_path, false)?;
                flock(&head, FlockOperation::NonBlockingLockExclusive)?;
                head.write_all_at(&head_text(&self.part, self.n, &self.hash), 0)?;
                Ok(head)
            };
            self.head = make().map_err(AuditError::io(&head_path))?;
        }
        self.next_part()
    }

    fn open_line(&mut self, time: Timestamp) {
        let (bridge, part) = (self.part.bridge.clone(), self.part.number);
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        let open = Event::Open { bridge, part, version, pid, mode: self.mode };
        self.add(time, &open, Contents::default());
    }

    fn path(&self) -> PathBuf {
        self.folder.join(self.part.file())
    }

    /// Whether the file is still the one of its name: somebody may have removed it.
    fn is_there(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let is = self.file.metadata().map(|file| (file.dev(), file.ino()));
        let named = std::fs::symlink_metadata(self.path()).map(|file| (file.dev(), file.ino()));
        matches!((is, named), (Ok(is), Ok(named)) if is == named)
    }
}

fn head_text(part: &Part, n: u64, hash: &str) -> Vec<u8> {
    let head = json!({ "bridge": part.bridge, "part": part.number, "n": n, "hash": hash });
    format!("{:<width$}\n", head.to_string(), width = HEAD - 1).into_bytes()
}

/// What a head says.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(super) struct HeadText {
    pub(super) part: u32,
    pub(super) n: u64,
    pub(super) hash: String,
}

/// Reads a head.
pub(super) fn read_head(path: &Path) -> io::Result<HeadText> {
    use std::io::Read;
    let mut text = Vec::new();
    File::open(path)?.take(HEAD as u64 + 1).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::from)
}
