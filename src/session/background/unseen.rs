//! Output that no look has shown yet.

use std::collections::VecDeque;

use crate::session::Stream;

/// The last bytes of a stream since the last look.
#[derive(Debug)]
pub(super) struct Unseen {
    budget: usize,
    bytes: VecDeque<u8>,
    /// Bytes before those, which have no space.
    left_out: u64,
}

impl Unseen {
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, bytes: VecDeque::new(), left_out: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let fitting = &bytes[bytes.len().saturating_sub(self.budget)..];
        self.bytes.extend(fitting);
        let surplus = self.bytes.len().saturating_sub(self.budget);
        self.bytes.drain(..surplus);
        self.left_out += (bytes.len() - fitting.len() + surplus) as u64;
    }

    /// Returns how many lines there are.
    pub(super) fn lines(&self) -> usize {
        self.bytes.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Takes what is there, in whole lines where the code still writes.
    pub(super) fn take(&mut self, is_running: bool) -> Stream {
        let bytes = self.bytes.make_contiguous();
        let end = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) if is_running => end + 1,
            // A line without an end is shown when it has one, unless it is long.
            None if is_running && bytes.len() < self.budget / 2 => 0,
            _ => bytes.len(),
        };
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let left_out = std::mem::take(&mut self.left_out);
        self.bytes.drain(..end);
        let total_bytes = end as u64 + left_out;
        match left_out {
            0 => Stream { text, total_bytes, truncated: false },
            _ => {
                let text = format!(
                    "[{left_out} bytes before this are left out; print less, or look more often]\n{text}"
                );
                Stream { text, total_bytes, truncated: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_shown_once_in_whole_lines() {
        let mut unseen = Unseen::new(100);
        unseen.push(b"one\ntw");
        assert_eq!(unseen.take(true).text, "one\n");
        assert_eq!(unseen.take(true).text, "");
        unseen.push(b"o\n");
        assert_eq!((unseen.lines(), unseen.take(true).text.as_str()), (1, "two\n"));
        unseen.push(b"end");
        assert_eq!(unseen.take(false).text, "end");
    }

    #[test]
    fn the_end_of_long_output_is_kept_and_the_rest_counted() {
        let mut unseen = Unseen::new(10);
        unseen.push(&[b'x'; 1000]);
        unseen.push(b"\nlast\n");
        let stream = unseen.take(true);
        assert_eq!(
            stream.text,
            "[996 bytes before this are left out; print less, or look more often]\nxxxx\nlast\n"
        );
        assert_eq!((stream.total_bytes, stream.truncated), (1006, true));
        assert_eq!(unseen.take(false), Stream::default());
    }
}
