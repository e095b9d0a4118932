//! The output of a run: the part that is shown, within a budget, and all of it on disk when it is longer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{OutputStream, Stream};

/// Bytes of one stream of one run that are kept on disk; the rest is counted and dropped.
const KEPT_PER_STREAM: u64 = 128 << 20;
/// Runs whose output is kept.
const KEPT_RUNS: usize = 32;
/// Bytes of all of them: the folder of temporary files may be in memory.
const KEPT_IN_ALL: u64 = 512 << 20;

/// Collects one stream, in at most twice its budget of memory.
#[derive(Debug)]
pub(super) struct Capture {
    budget: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spill: Option<Spill>,
}

/// The file of a stream that is longer than its budget. It has no name, so it is deleted with its last descriptor.
#[derive(Debug)]
struct Spill {
    file: File,
    length: u64,
}

impl Capture {
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, head: Vec::new(), tail: VecDeque::new(), total: 0, spill: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let space = self.budget.saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(bytes.len().min(space));
        self.head.extend_from_slice(first);
        if rest.is_empty() {
            return;
        }
        if self.spill.is_none() {
            self.spill = Spill::start(&self.head);
        }
        if let Some(spill) = &mut self.spill {
            spill.append(rest);
        }
        let last = &rest[rest.len().saturating_sub(self.budget)..];
        self.tail.extend(last);
        let surplus = self.tail.len().saturating_sub(self.budget);
        self.tail.drain(..surplus);
    }

    /// Ends the capture. Returns the part to show, and all of it where that is more; `rest` says how to read the rest.
    pub(super) fn finish(mut self, rest: impl FnOnce() -> String) -> (Stream, Option<KeptStream>) {
        if self.total <= self.budget as u64 {
            let text = String::from_utf8_lossy(&self.head).into_owned();
            return (Stream { text, total_bytes: self.total, truncated: false }, None);
        }
        let half = self.budget / 2;
        let tail = self.tail.make_contiguous();
        // The beginning of the tail may still be in the head.
        let behind_head = self.total - self.head.len() as u64;
        let wanted = (self.budget - half).min(usize::try_from(self.total).unwrap_or(usize::MAX));
        let mut last = Vec::with_capacity(wanted);
        if (behind_head as usize) < wanted {
            last.extend_from_slice(&self.head[self.head.len() - (wanted - behind_head as usize)..]);
        }
        last.extend_from_slice(&tail[tail.len().saturating_sub(wanted)..]);
        let first = whole_lines_at_the_end(&self.head[..half]);
        let last = whole_lines_at_the_start(&last);
        let omitted = self.total.saturating_sub((first.len() + last.len()) as u64);
        let kept = self.spill.map(|spill| KeptStream { file: Arc::new(spill.file), length: spill.length });
        let notice = match &kept {
            None => format!(
                "[output cut: {} bytes in total, {omitted} not shown and lost: failed to write a temporary file]",
                self.total
            ),
            Some(kept) if kept.length < self.total => {
                format!(
                    "[output cut: {} bytes in total, {omitted} not shown; the first {} are kept: {}]",
                    self.total,
                    kept.length,
                    rest()
                )
            }
            Some(_) => {
                format!("[output cut: {} bytes in total, {omitted} not shown; {}]", self.total, rest())
            }
        };
        let text = format!(
            "{notice}\n{}\n[… {omitted} bytes …]\n{}",
            String::from_utf8_lossy(first).trim_end_matches('\n'),
            String::from_utf8_lossy(last)
        );
        (Stream { text, total_bytes: self.total, truncated: true }, kept)
    }
}

impl Spill {
    fn start(head: &[u8]) -> Option<Self> {
        let started = tempfile::tempfile().and_then(|mut file| file.write_all(head).map(|()| file));
        match started {
            Ok(file) => Some(Self { file, length: head.len() as u64 }),
            Err(error) => {
                tracing::warn!(%error, "could not keep the output beyond the budget");
                None
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let space = usize::try_from(KEPT_PER_STREAM.saturating_sub(self.length)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(space)];
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        } else {
            // The disk may be full: what was written so far stays readable.
            let _ = self.file.seek(SeekFrom::Start(self.length));
        }
    }
}

/// Drops a last line that was cut in two, unless it is the only one.
fn whole_lines_at_the_end(bytes: &[u8]) -> &[u8] {
    match bytes.iter().rposition(|&b| b == b'\n') {
        Some(end) if end > 0 => &bytes[..=end],
        _ => &bytes[..whole_characters(bytes)],
    }
}

/// Drops a first line that was cut in two, unless it is the only one.
fn whole_lines_at_the_start(bytes: &[u8]) -> &[u8] {
    match bytes.iter().position(|&b| b == b'\n') {
        Some(end) if end + 1 < bytes.len() => &bytes[end + 1..],
        _ => &bytes[bytes.iter().take(3).take_while(|&&b| b & 0xc0 == 0x80).count()..],
    }
}

/// Returns the length of the bytes without an incomplete UTF-8 character at their end.
pub fn whole_characters(bytes: &[u8]) -> usize {
    let end = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let is_cut = str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
    if is_cut { bytes.len() - end.len() } else { bytes.len() }
}

/// One stream of a run that was cut.
#[derive(Debug, Clone)]
pub(super) struct KeptStream {
    file: Arc<File>,
    length: u64,
}

impl KeptStream {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns bytes from `start`, at most `length` and 64 MiB.
    pub(super) fn read(&self, start: u64, length: u64) -> Vec<u8> {
        let length = length.min(self.length.saturating_sub(start)).min(64 << 20);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.file.read_exact_at(&mut bytes, start) {
            Ok(()) => bytes,
            Err(error) => {
                tracing::warn!(%error, "could not read kept output");
                Vec::new()
            }
        }
    }
}

/// The kept outputs of the last runs.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    runs: VecDeque<(u32, Kept)>,
}

/// In the order of [`OutputStream`].
pub(super) type Kept = [Option<KeptStream>; 3];

impl Outputs {
    pub(super) fn keep(&mut self, run: u32, streams: Kept) {
        if streams.iter().all(Option::is_none) {
            return;
        }
        self.runs.push_back((run, streams));
        let bytes = |runs: &VecDeque<(u32, Kept)>| -> u64 {
            runs.iter().flat_map(|(_, streams)| streams.iter().flatten()).map(KeptStream::length).sum()
        };
        while self.runs.len() > KEPT_RUNS || bytes(&self.runs) > KEPT_IN_ALL {
            self.runs.pop_front();
        }
    }

    pub(super) fn runs(&self) -> Vec<u32> {
        self.runs.iter().map(|(run, _)| *run).collect()
    }

    pub(super) fn get(&self, run: u32, stream: OutputStream) -> Option<KeptStream> {
        let (_, streams) = self.runs.iter().find(|(id, _)| *id == run)?;
        streams[stream as usize].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(budget: usize, chunks: &[&[u8]]) -> (Stream, Option<KeptStream>) {
        let mut capture = Capture::new(budget);
        chunks.iter().for_each(|chunk| capture.push(chunk));
        capture.finish(|| "ask".into())
    }

    #[test]
    fn output_within_the_budget_is_shown_as_it_is() {
        let (stream, kept) = captured(10, &[b"a\n\n", b"b\xff\n"]);
        assert_eq!(stream, Stream { text: "a\n\nb\u{fffd}\n".into(), total_bytes: 6, truncated: false });
        assert!(kept.is_none());
    }

    #[test]
    fn longer_output_is_cut_in_the_middle_at_lines_and_kept_whole() {
        let lines: Vec<u8> = (0..1000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        for size in [1, 7, 64, 10_000] {
            let chunks: Vec<&[u8]> = lines.chunks(size).collect();
            let (stream, kept) = captured(100, &chunks);
            assert!(stream.truncated && stream.total_bytes == lines.len() as u64);
            let shown: Vec<&str> = stream.text.lines().collect();
            assert!(
                shown[0].starts_with("[output cut: 8890 bytes in total, ") && shown[0].ends_with("ask]"),
                "{shown:?}"
            );
            assert_eq!((shown[1], *shown.last().unwrap()), ("line 0", "line 999"));
            assert!(
                shown[2..].iter().all(|line| line.starts_with("line ") || line.starts_with("[… ")),
                "{shown:?}"
            );
            let kept = kept.unwrap();
            assert_eq!(kept.read(0, u64::MAX), lines);
            assert_eq!(kept.read(5, 3), lines[5..8]);
            assert_eq!(kept.read(9_999_999, 3), b"");
        }
    }

    #[test]
    fn a_single_long_line_is_cut_between_characters() {
        let text = "ä".repeat(500);
        let (stream, _) = captured(101, &[text.as_bytes()]);
        assert!(!stream.text.contains('\u{fffd}'), "{}", stream.text);
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        assert_eq!(whole_characters("aä".as_bytes()), 3);
        assert_eq!(whole_characters(&"aä".as_bytes()[..2]), 1);
        assert_eq!(whole_characters(&"a🦀".as_bytes()[..4]), 1);
        assert_eq!(whole_characters(b"a\xff"), 2);
        assert_eq!(whole_characters(b""), 0);
    }

    #[test]
    fn the_oldest_outputs_are_dropped_when_there_are_too_many() {
        let stream = |length| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(length).unwrap();
            Some(KeptStream { file: Arc::new(file), length })
        };
        let mut outputs = Outputs::default();
        (1..=3).for_each(|run| outputs.keep(run, [stream(KEPT_IN_ALL / 4), stream(KEPT_IN_ALL / 4), None]));
        assert_eq!(outputs.runs(), [2, 3]);
        (4..=100).for_each(|run| outputs.keep(run, [stream(1), None, None]));
        assert_eq!(outputs.runs().len(), KEPT_RUNS);
        assert!(outputs.get(100, OutputStream::Stdout).is_some());
        assert!(outputs.get(100, OutputStream::Stderr).is_none());
    }
}
