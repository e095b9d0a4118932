//! The output of a run: the part that is shown, within a budget, and all of it on disk when it is longer.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{OutputStream, Stream};

/// Bytes of one stream of one run that are kept on disk; the rest is counted and dropped.
const KEPT_PER_STREAM: u64 = 128 << 20;
/// Runs whose output is kept.
const KEPT_RUNS: usize = 32;
/// Bytes of all output that is kept or being captured: the folder of temporary files may be in memory.
const KEPT_IN_ALL: u64 = 512 << 20;

/// Collects one stream, in at most twice its budget of memory.
#[derive(Debug)]
pub(super) struct Capture {
    budget: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    outputs: Arc<Mutex<Outputs>>,
    spill: Option<KeptStream>,
}

impl Capture {
    /// Returns a capture that shows at most `budget` bytes, and has its share in `outputs`.
    pub(super) fn new(budget: usize, outputs: Arc<Mutex<Outputs>>) -> Self {
        Self { budget, head: Vec::new(), tail: VecDeque::new(), total: 0, outputs, spill: None }
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
            self.spill = KeptStream::start(&self.outputs);
            if let Some(spill) = &mut self.spill {
                spill.append(&self.head, &self.outputs);
            }
        }
        if let Some(spill) = &mut self.spill {
            spill.append(rest, &self.outputs);
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
        let kept = self.spill;
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

/// One stream of a run that was cut, as far as it is kept.
#[derive(Debug, Clone)]
pub(super) struct KeptStream {
    file: Arc<KeptFile>,
    length: u64,
}

/// A file without a name, so that it is deleted with its last descriptor.
#[derive(Debug)]
struct KeptFile {
    file: File,
    /// Its share of all output that is kept.
    share: AtomicU64,
    used: Arc<AtomicU64>,
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        self.used.fetch_sub(self.share.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl KeptStream {
    fn start(outputs: &Mutex<Outputs>) -> Option<Self> {
        let used = Arc::clone(&lock(outputs).used);
        match tempfile::tempfile() {
            Ok(file) => {
                Some(Self { file: Arc::new(KeptFile { file, share: AtomicU64::new(0), used }), length: 0 })
            }
            Err(error) => {
                tracing::warn!(%error, "could not keep the output beyond the budget");
                None
            }
        }
    }

    /// Appends as much as there is space for.
    fn append(&mut self, bytes: &[u8], outputs: &Mutex<Outputs>) {
        // A gap would be read as if there were none.
        let is_whole = self.file.share.load(Ordering::Relaxed) == self.length;
        let wanted = (bytes.len() as u64).min(KEPT_PER_STREAM.saturating_sub(self.length));
        if wanted == 0 || !is_whole {
            return;
        }
        let share = lock(outputs).reserve(wanted);
        self.file.share.fetch_add(share, Ordering::Relaxed);
        let bytes = &bytes[..usize::try_from(share).unwrap_or(0)];
        // The disk may be full: what was written so far stays readable.
        if self.file.file.write_all_at(bytes, self.length).is_ok() {
            self.length += share;
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns bytes from `start`, at most `length` and 64 MiB.
    pub(super) fn read(&self, start: u64, length: u64) -> Vec<u8> {
        let length = length.min(self.length.saturating_sub(start)).min(64 << 20);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.file.file.read_exact_at(&mut bytes, start) {
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
    /// Bytes of them, and of what is being captured.
    used: Arc<AtomicU64>,
}

/// In the order of [`OutputStream`].
pub(super) type Kept = [Option<KeptStream>; 3];

fn lock(outputs: &Mutex<Outputs>) -> std::sync::MutexGuard<'_, Outputs> {
    outputs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outputs {
    pub(super) fn keep(&mut self, run: u32, streams: Kept) {
        if streams.iter().all(Option::is_none) {
            return;
        }
        self.runs.push_back((run, streams));
        while self.runs.len() > KEPT_RUNS {
            self.runs.pop_front();
        }
    }

    /// Takes bytes for output that is being captured, from that of the oldest runs if necessary; returns how many.
    fn reserve(&mut self, wanted: u64) -> u64 {
        let used = |this: &Self| this.used.load(Ordering::Relaxed);
        while used(self) + wanted > KEPT_IN_ALL && self.runs.pop_front().is_some() {}
        let share = wanted.min(KEPT_IN_ALL.saturating_sub(used(self)));
        self.used.fetch_add(share, Ordering::Relaxed);
        share
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
        let mut capture = Capture::new(budget, Arc::default());
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
        let outputs = Arc::<Mutex<Outputs>>::default();
        let stream = |length: u64| {
            let mut kept = KeptStream::start(&outputs).unwrap();
            kept.length = lock(&outputs).reserve(length);
            kept.file.share.store(kept.length, Ordering::Relaxed);
            Some(kept)
        };
        let keep = |run, streams| lock(&outputs).keep(run, streams);
        (1..=3).for_each(|run| keep(run, [stream(KEPT_IN_ALL / 4), stream(KEPT_IN_ALL / 4), None]));
        assert_eq!(lock(&outputs).runs(), [2, 3]);
        (4..=100).for_each(|run| keep(run, [stream(1), None, None]));
        let outputs = lock(&outputs);
        assert_eq!(
            (outputs.runs().len(), outputs.used.load(Ordering::Relaxed)),
            (KEPT_RUNS, KEPT_RUNS as u64)
        );
        assert!(outputs.get(100, OutputStream::Stdout).is_some());
        assert!(outputs.get(100, OutputStream::Stderr).is_none());
    }

    #[test]
    fn output_that_is_being_captured_counts_like_that_which_is_kept() {
        let outputs = Arc::<Mutex<Outputs>>::default();
        let used = || lock(&outputs).used.load(Ordering::Relaxed);
        lock(&outputs).used.store(KEPT_IN_ALL - 1000, Ordering::Relaxed);
        let mut captures = [(); 3].map(|()| Capture::new(100, Arc::clone(&outputs)));
        for _ in 0..6 {
            captures.iter_mut().for_each(|capture| capture.push(&[b'x'; 100]));
        }
        assert_eq!(used(), KEPT_IN_ALL);
        let [first, second, third] = captures;
        let (shown, kept) = first.finish(|| "ask".into());
        let kept = kept.unwrap();
        assert!(shown.text.starts_with("[output cut: 600 bytes in total, "), "{}", shown.text);
        assert!(shown.text.contains("the first 400 are kept: ask"), "{}", shown.text);
        assert_eq!(kept.read(0, 1000), [b'x'; 400]);
        drop((kept, second, third));
        assert_eq!(used(), KEPT_IN_ALL - 1000);
    }
}
