//! Reads lines of bounded length from a stream.

use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// A buffer that a long line made larger than this is freed after the line.
const KEPT_CAPACITY: usize = 1 << 20;
/// Bytes that are kept of each end of a line that is too long.
pub(crate) const KEPT_BYTES: usize = 1 << 10;

/// What some programs write before the first line.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Complete(&'a [u8]),
    TooLong(Skipped),
}

/// What is known of a line that was too long to keep.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) head: Vec<u8>,
    pub(crate) tail: Vec<u8>,
    pub(crate) length: u64,
}

impl Skipped {
    fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let free = KEPT_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..free.min(bytes.len())]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(KEPT_BYTES));
    }
}

/// Reads lines. Its futures are cancel-safe: what was read stays here.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    input: R,
    limit: usize,
    buffer: Vec<u8>,
    /// The start of the current line.
    start: usize,
    /// The end of what contains no newline.
    searched: usize,
    skipped: Option<Skipped>,
}

enum Found {
    Line(Range<usize>),
    TooLong(Skipped),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `limit` bytes.
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self { input, limit, buffer: Vec::new(), start: 0, searched: 0, skipped: None }
    }

    /// Returns the next line; None at the end. The last line needs no newline.
    pub(crate) async fn next_line(&mut self) -> std::io::Result<Option<Line<'_>>> {
        Ok(self.find().await?.map(|found| match found {
            Found::Line(range) => Line::Complete(&self.buffer[range]),
            Found::TooLong(skipped) => Line::TooLong(skipped),
        }))
    }

    /// Frees the memory of a long line before the next one is read.
    pub(crate) fn free_long_line(&mut self) {
        if self.buffer.capacity() > KEPT_CAPACITY && self.buffer.len() - self.start <= KEPT_CAPACITY {
            self.buffer = self.buffer[self.start..].to_vec();
            self.searched -= self.start;
            self.start = 0;
        }
    }

    async fn find(&mut self) -> std::io::Result<Option<Found>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let end = self.searched + at;
                return Ok(Some(self.take(end, end + 1)));
            }
            self.reserve();
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                let end = self.buffer.len();
                let nothing_left = self.start == end && self.skipped.is_none();
                return Ok((!nothing_left).then(|| self.take(end, end)));
            }
        }
    }

    /// Ends the current line at `end`; the next one starts at `next`.
    fn take(&mut self, end: usize, next: usize) -> Found {
        let range = self.start..end;
        self.start = next;
        self.searched = next;
        match self.skipped.take() {
            Some(mut skipped) => {
                skipped.push(&self.buffer[range]);
                Found::TooLong(skipped)
            }
            None if range.len() > self.limit => {
                let mut skipped = Skipped::default();
                skipped.push(&self.buffer[range]);
                Found::TooLong(skipped)
            }
            None => Found::Line(range),
        }
    }

    fn reserve(&mut self) {
        if self.skipped.is_some() || self.buffer.len() - self.start > self.limit {
            self.skipped.get_or_insert_default().push(&self.buffer[self.start..]);
            self.start = self.buffer.len();
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        self.searched = self.buffer.len();
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_CAPACITY {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(CHUNK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Read {
        Line(String),
        TooLong(u64, String, String),
    }

    async fn read_all(mut reader: LineReader<impl AsyncRead + Unpin>) -> Vec<Read> {
        let mut all = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        while let Some(line) = reader.next_line().await.unwrap() {
            all.push(match line {
                Line::Complete(bytes) => Read::Line(text(bytes)),
                Line::TooLong(s) => Read::TooLong(s.length, text(&s.head), text(&s.tail)),
            });
        }
        all
    }

    fn line(text: &str) -> Read {
        Read::Line(text.into())
    }

    #[tokio::test]
    async fn lines_are_split_at_newlines_and_the_last_one_needs_none() {
        assert_eq!(read_all(LineReader::new(&b""[..], 9)).await, []);
        assert_eq!(read_all(LineReader::new(&b"\n"[..], 9)).await, [line("")]);
        let read = read_all(LineReader::new(&b"a\n\nbc\r\nd"[..], 9)).await;
        assert_eq!(read, [line("a"), line(""), line("bc\r"), line("d")]);
    }

    #[tokio::test]
    async fn a_line_of_the_limit_is_read_and_a_longer_one_skipped() {
        let read = read_all(LineReader::new(&b"1234\n12345\n123\n"[..], 4)).await;
        let long = Read::TooLong(5, "12345".into(), "12345".into());
        assert_eq!(read, [line("1234"), long, line("123")]);
    }

    #[tokio::test]
    async fn a_skipped_line_keeps_its_ends_and_the_buffer_stays_small() {
        let mut input = b"<head>".to_vec();
        input.resize(3 << 20, b'x');
        input.extend_from_slice(b"<tail>\nnext\n");
        let mut reader = LineReader::new(&input[..], 100_000);
        let Some(Line::TooLong(skipped)) = reader.next_line().await.unwrap() else { panic!("not skipped") };
        assert_eq!(skipped.length, (3 << 20) + 6);
        assert_eq!((skipped.head.len(), skipped.tail.len()), (KEPT_BYTES, KEPT_BYTES));
        assert!(skipped.head.starts_with(b"<head>xxx"));
        assert!(skipped.tail.ends_with(b"xxx<tail>"));
        assert!(reader.buffer.capacity() <= KEPT_CAPACITY, "{}", reader.buffer.capacity());
        assert_eq!(read_all(reader).await, [line("next")]);
    }

    #[tokio::test]
    async fn a_long_line_is_skipped_also_when_the_stream_ends_in_it() {
        let input = vec![b'x'; 200_000];
        let read = read_all(LineReader::new(&input[..], 100)).await;
        assert_eq!(read, [Read::TooLong(200_000, "x".repeat(KEPT_BYTES), "x".repeat(KEPT_BYTES))]);
    }

    #[tokio::test]
    async fn the_memory_of_a_long_line_is_freed() {
        let mut input = vec![b'x'; 8 << 20];
        input.extend_from_slice(b"\nshort\n");
        let mut reader = LineReader::new(&input[..], 16 << 20);
        assert!(
            matches!(reader.next_line().await.unwrap(), Some(Line::Complete(line)) if line.len() == 8 << 20)
        );
        assert_eq!(reader.next_line().await.unwrap(), Some(Line::Complete(b"short")));
        assert_eq!(reader.next_line().await.unwrap(), None);
        assert!(reader.buffer.capacity() <= KEPT_CAPACITY);
    }

    #[tokio::test]
    async fn the_memory_of_a_long_line_is_freed_at_once_where_that_is_wanted() {
        let mut input = vec![b'x'; 8 << 20];
        input.extend_from_slice(b"\nshort\nrest");
        let mut reader = LineReader::new(&input[..], 16 << 20);
        assert!(matches!(reader.next_line().await.unwrap(), Some(Line::Complete(_))));
        reader.free_long_line();
        assert!(reader.buffer.capacity() <= KEPT_CAPACITY);
        assert_eq!(read_all(reader).await, [line("short"), line("rest")]);
    }

    #[tokio::test]
    async fn a_dropped_future_loses_nothing() {
        use tokio::io::AsyncWriteExt;
        let (mut writer, input) = tokio::io::duplex(4);
        let mut reader = LineReader::new(input, 100);
        for part in ["ab", "cd", "ef"] {
            writer.write_all(part.as_bytes()).await.unwrap();
            tokio::select! {
                biased;
                _ = reader.next_line() => panic!("there is no whole line yet"),
                () = std::future::ready(()) => {}
            }
        }
        writer.write_all(b"\n").await.unwrap();
        assert_eq!(reader.next_line().await.unwrap(), Some(Line::Complete(b"abcdef")));
    }
}
