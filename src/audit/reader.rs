//! Reads lines, those of all bridges in the order of their times.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::folder::{Part, is_bridge, names, parts};
use super::line::digest;
use super::record::{Found, Record};

/// Bytes of a file that are read at once.
const LARGEST: u64 = 128 << 20;
/// Bytes at the end of a file in which its last line begins.
const LONGEST_LINE: u64 = 64 << 10;

/// The lines of a file.
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    /// The bytes of whole lines; behind them is the beginning of another.
    pub(super) whole: usize,
}

impl Lines {
    pub(super) fn read(path: &Path, from: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        Ok(Self { bytes, whole })
    }

    pub(super) fn is_torn(&self) -> bool {
        self.whole < self.bytes.len()
    }

    /// Returns the whole lines, without their ends.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let whole = self.bytes[..self.whole].strip_suffix(b"\n");
        whole.into_iter().flat_map(|whole| whole.split(|byte| *byte == b'\n'))
    }
}

/// Returns the number and the hash of the last whole line of a file.
pub(super) fn last_line(path: &Path) -> Option<(u64, String)> {
    let length = std::fs::metadata(path).ok()?.len();
    let lines = Lines::read(path, length.saturating_sub(LONGEST_LINE)).ok()?;
    let last = lines.iter().last()?;
    let record: Record = serde_json::from_slice(last).ok()?;
    Some((record.n, digest(last)))
}

/// Returns all lines of a log, in the order of their times.
///
/// # Errors
/// The folder cannot be read.
pub fn read_all(folder: &Path, since: Option<Timestamp>) -> io::Result<Vec<Found>> {
    Follower::new(folder, since).poll()
}

/// Returns the lines of the bridge of a run; None if the text names no run.
///
/// # Errors
/// The folder cannot be read.
pub fn read_run(folder: &Path, run: &str) -> io::Result<Option<Vec<Found>>> {
    let Some(mut follower) = Follower::of_run(folder, run) else { return Ok(None) };
    let mut lines = follower.poll()?;
    lines.sort_by_key(|line| line.record.n);
    Ok(Some(lines))
}

/// Returns the lines of a run alone, its calls by their times; none if the text names no run.
///
/// # Errors
/// The folder cannot be read.
pub fn read_lines_of(folder: &Path, run: &str) -> io::Result<Vec<Found>> {
    let mut lines = Vec::new();
    let Some(mut follower) = Follower::of_run(folder, run) else { return Ok(lines) };
    let field = format!("\"run\":\"{run}\"");
    follower.read_new(|text| text.contains(&field), |line| lines.push(line))?;
    lines.retain(|line| line.record.run.as_deref() == Some(run));
    lines.sort_by_key(|line| line.record.n);
    Ok(lines)
}

/// Reads lines as they come.
#[derive(Debug)]
pub struct Follower {
    folder: PathBuf,
    since: Option<Timestamp>,
    only: Option<String>,
    /// How far each file was read.
    read: HashMap<Part, u64>,
}

impl Follower {
    /// Returns one that begins with the lines that there are.
    pub fn new(folder: &Path, since: Option<Timestamp>) -> Self {
        Self { folder: folder.to_path_buf(), since, only: None, read: HashMap::new() }
    }

    /// Returns one of the lines of the bridge of a run; None if the text names no run.
    fn of_run(folder: &Path, run: &str) -> Option<Self> {
        let (bridge, number) = run.split_once('-')?;
        let is_run = is_bridge(bridge) && number.parse::<u32>().is_ok();
        is_run.then(|| Self { only: Some(bridge.to_owned()), ..Self::new(folder, None) })
    }

    /// Returns the lines that came since the last call. A line that cannot be read is left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn poll(&mut self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        self.read_new(|_| true, |line| found.push(line))?;
        found.sort_by_key(|found: &Found| found.record.time);
        Ok(found)
    }

    /// Passes on the lines that came since the last call, one file after the other. Only those are read whose text is wanted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read_new(
        &mut self,
        mut is_wanted: impl FnMut(&str) -> bool,
        mut pass: impl FnMut(Found),
    ) -> io::Result<()> {
        for part in parts(&names(&self.folder)?) {
            if self.only.as_ref().is_some_and(|bridge| *bridge != part.bridge) {
                continue;
            }
            let path = self.folder.join(part.file());
            // It may have been removed meanwhile.
            let Ok(metadata) = path.metadata() else { continue };
            let from = self.read.get(&part).copied().unwrap_or(0);
            if metadata.len() <= from || self.is_older(&metadata) {
                continue;
            }
            let Ok(lines) = Lines::read(&path, from) else { continue };
            self.read.insert(part.clone(), from + lines.whole as u64);
            for line in lines.iter() {
                let Ok(text) = str::from_utf8(line) else { continue };
                if !is_wanted(text) {
                    continue;
                }
                let Ok(record) = serde_json::from_str::<Record>(text) else { continue };
                if self.since.is_none_or(|since| record.time.is_some_and(|time| time >= since)) {
                    pass(Found { part: part.clone(), text: text.to_owned(), record });
                }
            }
        }
        Ok(())
    }

    /// Whether the last line of a file is older than what is wanted.
    fn is_older(&self, metadata: &std::fs::Metadata) -> bool {
        let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        matches!((self.since, modified), (Some(since), Some(modified)) if modified < since)
    }
}
