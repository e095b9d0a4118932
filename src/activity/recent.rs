//! The beginning and the end of a stream; what is between them is counted.

use std::collections::VecDeque;

use super::rows::{OutputPart, Piece};

/// Bytes that are kept of the beginning, and of the end.
pub(super) const HEAD: usize = 64 << 10;
pub(super) const TAIL: usize = 192 << 10;
/// Bytes of a character that may be missing at its beginning.
const CONTINUATION: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Recent {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Recent {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let space = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(space);
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the bytes that are kept.
    pub(super) fn kept(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Keeps nothing of it but its length.
    pub(super) fn forget(&mut self) {
        (self.head, self.tail) = (Vec::new(), VecDeque::new());
    }

    /// Returns what is kept from an offset on. A character that is not whole yet comes with the next part, unless this is the end.
    pub(super) fn read(&self, from: u64, is_end: bool) -> OutputPart {
        let head_end = self.head.len() as u64;
        let tail_start = self.total - self.tail.len() as u64;
        let mut at = from.min(self.total);
        let (mut pieces, mut text) = (Vec::new(), Vec::new());
        if at < head_end {
            text.extend_from_slice(&self.head[usize::try_from(at).unwrap_or(HEAD)..]);
            at = head_end;
        }
        if at < tail_start {
            push_text(&mut pieces, &text);
            text.clear();
            let split =
                self.tail.iter().take(CONTINUATION).take_while(|byte| is_continuation(**byte)).count();
            let start = tail_start + split as u64;
            pieces.push(Piece::LeftOut(start - at));
            at = start;
        }
        if at < self.total {
            let skipped = usize::try_from(at - tail_start).unwrap_or(TAIL);
            text.extend(self.tail.iter().skip(skipped));
            at = self.total;
        }
        if !is_end {
            let unfinished = unfinished_character(&text);
            at -= unfinished as u64;
            text.truncate(text.len() - unfinished);
        }
        push_text(&mut pieces, &text);
        OutputPart { pieces, next: at, is_end: is_end && at >= self.total }
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &[u8]) {
    if !text.is_empty() {
        pieces.push(Piece::Text(String::from_utf8_lossy(text).into_owned()));
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Returns how many bytes at the end may be the beginning of a character.
fn unfinished_character(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(CONTINUATION);
    let Some((after, first)) = last.enumerate().find(|(_, byte)| !is_continuation(**byte)) else { return 0 };
    let length = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if length > after + 1 { after + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(part: &OutputPart) -> String {
        let shown = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::LeftOut(bytes) => format!("<{bytes}>"),
        };
        part.pieces.iter().map(shown).collect()
    }

    #[test]
    fn a_short_stream_is_kept_whole_and_read_in_parts() {
        let mut stream = Recent::default();
        stream.push(b"one\n");
        let first = stream.read(0, false);
        assert_eq!((text(&first), first.next, first.is_end), ("one\n".into(), 4, false));
        stream.push("zwei €".as_bytes());
        let second = stream.read(first.next, true);
        assert_eq!((text(&second), second.is_end), ("zwei €".into(), true));
        assert_eq!(stream.read(second.next, true).pieces, []);
        assert_eq!(stream.read(u64::MAX, true).pieces, []);
    }

    #[test]
    fn a_character_comes_whole_however_its_bytes_arrive() {
        for character in ["é", "€", "😀"] {
            let mut stream = Recent::default();
            let (mut read, mut at) = (String::new(), 0);
            for byte in format!("a{character}b").bytes() {
                stream.push(&[byte]);
                let part = stream.read(at, false);
                read.push_str(&text(&part));
                at = part.next;
            }
            assert_eq!(read, format!("a{character}b"));
        }
        let mut cut = Recent::default();
        cut.push(b"x\xe2\x82");
        assert_eq!((text(&cut.read(0, false)), text(&cut.read(0, true))), ("x".into(), "x\u{fffd}".into()));
        let mut invalid = Recent::default();
        invalid.push(b"\xff\xff\x80\x80\x80\x80");
        assert_eq!(invalid.read(0, false).next, 6, "what can never be a character is not waited for");
    }

    #[test]
    fn of_a_long_stream_both_ends_are_kept() {
        let mut stream = Recent::default();
        stream.push(&vec![b'a'; HEAD - 1]);
        stream.push(&vec![b'b'; 10 << 20]);
        stream.push("€end".as_bytes());
        assert_eq!(stream.kept(), HEAD + TAIL);
        let all = stream.read(0, true);
        let [Piece::Text(head), Piece::LeftOut(left_out), Piece::Text(tail)] = &all.pieces[..] else {
            panic!("{} pieces", all.pieces.len())
        };
        assert_eq!((head.len(), tail.len()), (HEAD, TAIL));
        assert_eq!(*left_out, stream.total() - (HEAD + TAIL) as u64);
        assert!(tail.ends_with("b€end"));
        let later = stream.read(100_000, true);
        assert!(
            matches!(later.pieces[0], Piece::LeftOut(bytes) if bytes == stream.total() - TAIL as u64 - 100_000)
        );
        stream.forget();
        assert_eq!((stream.read(0, true).pieces, stream.kept()), (vec![Piece::LeftOut(stream.total())], 0));
    }
}
