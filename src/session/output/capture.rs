//! The output of a run: the part that is shown, within a budget, and all of it on disk when it is longer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::kept::{KeptStream, Outputs};
use crate::session::Stream;

/// Collects one stream, in at most twice its budget of memory.
#[derive(Debug)]
pub(in crate::session) struct Capture {
    budget: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    outputs: Arc<Mutex<Outputs>>,
    spill: Option<KeptStream>,
}

impl Capture {
    /// Returns a capture that shows at most `budget` bytes, and has its share in `outputs`.
    pub(in crate::session) fn new(budget: usize, outputs: Arc<Mutex<Outputs>>) -> Self {
        Self { budget, head: Vec::new(), tail: VecDeque::new(), total: 0, outputs, spill: None }
    }

    pub(in crate::session) fn push(&mut self, bytes: &[u8]) {
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

    /// Bytes so far.
    pub(in crate::session) fn total(&self) -> u64 {
        self.total
    }

    /// Returns how many lines of what is shown so many bytes of output are. Of output that is cut it counts all that is shown.
    pub(in crate::session) fn lines_in(&self, bytes: u64) -> usize {
        if self.total > self.budget as u64 {
            return usize::MAX;
        }
        let before = &self.head[..self.head.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        lines + usize::from(!before.is_empty() && !before.ends_with(b"\n"))
    }

    /// Ends the capture. Returns the part to show, and all of it where that is more; `rest` says how to read the rest.
    pub(in crate::session) fn finish(
        mut self,
        rest: impl FnOnce() -> String,
    ) -> (Stream, Option<KeptStream>) {
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
            Some(kept) if kept.length() < self.total => {
                format!(
                    "[output cut: {} bytes in total, {omitted} not shown; the first {} are kept: {}]",
                    self.total,
                    kept.length(),
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
}
