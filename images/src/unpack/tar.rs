//! Reads tar archives as the unpacker needs them: entry by entry, from a stream, with a bound on everything.
//!
//! `tar-core` parses headers, GNU and pax extensions and the maps of sparse files. This file reads what the parser asks
//! for, keeps to its own bounds, and refuses what the parser lets pass.

use std::io::{self, BufRead};

use tar_core::parse::{Limits, ParseError, ParseEvent, ParsedEntry, Parser};
use tar_core::{EntryType, Header, PaxExtensions, SparseEntry};

use super::error::{UnpackError, refused};

const BLOCK: usize = 512;
/// Names and attributes of one entry. PATH_MAX is 4096, one attribute at most 64 KiB.
const METADATA_LIMIT: u32 = 1 << 20;
/// More parts than any sparse file of an image has; each costs memory before anything is written.
const SEGMENT_LIMIT: usize = 1 << 16;
/// What may precede the content of an entry: its metadata, and a map of the most parts in decimal numbers.
const HEAD_LIMIT: usize = 4 << 20;

/// What archives are read from.
pub(crate) trait Source: BufRead {
    /// Skips this many bytes; false when the source ends before.
    fn skip(&mut self, mut count: u64) -> io::Result<bool> {
        while count > 0 {
            let available = self.fill_buf()?.len();
            if available == 0 {
                return Ok(false);
            }
            let step = available.min(usize::try_from(count).unwrap_or(usize::MAX));
            self.consume(step);
            count -= step as u64;
        }
        Ok(true)
    }
}

impl<S: Source> Source for &mut S {
    fn skip(&mut self, count: u64) -> io::Result<bool> {
        (**self).skip(count)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    SymbolicLink,
    HardLink,
    /// Devices, pipes, and what only other systems know.
    Other,
}

/// An entry's header with all its extensions.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: i64,
    /// Bytes that follow in the archive.
    pub(crate) stored: u64,
    /// Where the stored bytes go in a file with holes.
    pub(super) sparse: Option<SparseMap>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Where the stored bytes of a file with holes go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// The file's size with its holes.
    pub(super) size: u64,
    pub(super) segments: Vec<SparseEntry>,
}

/// An archive being read.
pub(crate) struct TarStream<R> {
    inner: R,
    parser: Parser,
    /// Bytes that were read to parse a header, from `used` on not consumed yet.
    head: Vec<u8>,
    used: usize,
    /// Bytes consumed since the beginning of the archive.
    position: u64,
    /// Unread bytes of the current entry, and what fills its last block.
    left: u64,
    padding: u64,
    /// Whether the archive has its end mark.
    pub(super) complete: bool,
}

/// The outcome of parsing the bytes at hand.
enum Step {
    /// An entry, whose header takes this many bytes.
    Entry(Box<Entry>, usize),
    /// Records for the whole archive: they say nothing that counts here.
    Skip(usize),
    /// A header that goes on.
    More,
    End,
}

impl<R: Source> TarStream<R> {
    pub(crate) fn new(inner: R) -> Self {
        let limits = Limits {
            max_metadata_size: METADATA_LIMIT,
            max_sparse_entries: SEGMENT_LIMIT,
            ..Limits::default()
        };
        let mut parser = Parser::new(limits);
        // A time before 1970 is no number for it; numbers of pax records are checked here instead.
        parser.set_ignore_pax_errors(true);
        parser.set_allow_empty_path(true);
        Self { inner, parser, head: Vec::new(), used: 0, position: 0, left: 0, padding: 0, complete: false }
    }

    /// Returns how many bytes of the archive were consumed: the place of the entry's content after [`Self::next`].
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next entry, after skipping what is left of the one before.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, UnpackError> {
        self.skip_entry()?;
        loop {
            let Self { inner, parser, head, used, .. } = self;
            let available = available(inner, head, *used)?;
            if available.is_empty() {
                return Ok(None);
            }
            match step(parser, available)? {
                Step::Entry(entry, count) => {
                    self.advance(count);
                    self.left = entry.stored;
                    self.padding = padding(entry.stored);
                    return Ok(Some(*entry));
                }
                Step::Skip(count) => self.advance(count),
                Step::End => {
                    self.complete = true;
                    return Ok(None);
                }
                Step::More => self.read_ahead()?,
            }
        }
    }

    /// Returns more of the entry's content, at most `limit` bytes; nothing at its end.
    pub(super) fn data(&mut self, limit: u64) -> Result<&[u8], UnpackError> {
        let wanted = self.left.min(limit);
        if wanted == 0 {
            return Ok(&[]);
        }
        let available = available(&mut self.inner, &self.head, self.used)?;
        if available.is_empty() {
            return Err(malformed("it ends in the middle of a file"));
        }
        Ok(&available[..available.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))])
    }

    /// Marks this much of what [`Self::data`] returned as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.advance(count);
        self.left -= count as u64;
    }

    /// Reads to the end of the stream, and so also what follows the archive.
    pub(super) fn drain(mut self) -> Result<(), UnpackError> {
        loop {
            let count = self.inner.fill_buf().map_err(read_error)?.len();
            if count == 0 {
                return Ok(());
            }
            self.inner.consume(count);
        }
    }

    fn skip_entry(&mut self) -> Result<(), UnpackError> {
        let left = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        let ahead = (self.head.len() - self.used).min(usize::try_from(left).unwrap_or(usize::MAX));
        self.advance(ahead);
        let rest = left - ahead as u64;
        self.position = self.position.saturating_add(rest);
        match self.inner.skip(rest).map_err(read_error)? {
            true => Ok(()),
            false => Err(malformed("it ends in the middle of an entry")),
        }
    }

    fn advance(&mut self, count: usize) {
        self.position += count as u64;
        if self.used == self.head.len() {
            return self.inner.consume(count);
        }
        self.used += count;
        if self.used == self.head.len() {
            self.head.clear();
            self.used = 0;
        }
    }

    /// Collects one more chunk for a header that does not end in the bytes at hand. Whole chunks, because the parser
    /// starts again from the beginning each time.
    fn read_ahead(&mut self) -> Result<(), UnpackError> {
        self.head.drain(..self.used);
        self.used = 0;
        if self.head.len() > HEAD_LIMIT {
            return Err(UnpackError::TooBig {
                what: "bytes in the header of one entry",
                limit: HEAD_LIMIT as u64,
            });
        }
        for _ in 0..if self.head.is_empty() { 2 } else { 1 } {
            let chunk = self.inner.fill_buf().map_err(read_error)?;
            if chunk.is_empty() {
                return Err(malformed("it ends in the middle of a header"));
            }
            let count = chunk.len();
            self.head.extend_from_slice(chunk);
            self.inner.consume(count);
        }
        Ok(())
    }
}

/// Returns the bytes that come next: those read ahead, then those of the source.
fn available<'a, R: Source>(inner: &'a mut R, head: &'a [u8], used: usize) -> Result<&'a [u8], UnpackError> {
    match &head[used..] {
        [] => inner.fill_buf().map_err(read_error),
        ahead => Ok(ahead),
    }
}

fn step(parser: &mut Parser, bytes: &[u8]) -> Result<Step, UnpackError> {
    // One empty block ends an archive, as for the engines; the parser wants two.
    if bytes.get(..BLOCK).is_some_and(|block| block.iter().all(|byte| *byte == 0)) {
        return Ok(Step::End);
    }
    check_metadata(bytes)?;
    Ok(match parser.parse(bytes).map_err(parse_error)? {
        ParseEvent::NeedData { .. } => Step::More,
        ParseEvent::GlobalExtensions { consumed, .. } => Step::Skip(consumed),
        ParseEvent::Entry { consumed, entry } => Step::Entry(Box::new(Entry::new(&entry, None)?), consumed),
        ParseEvent::SparseEntry { consumed, entry, sparse_map: segments, real_size: size } => {
            Step::Entry(Box::new(Entry::new(&entry, Some(SparseMap { size, segments }))?), consumed)
        }
        ParseEvent::End { .. } => Step::End,
    })
}

/// Refuses what the parser does not read well before an entry: metadata that is too large by itself, because the parser adds
/// up sizes before it checks their sum, and metadata that something else than its entry follows, because the parser drops it.
fn check_metadata(mut bytes: &[u8]) -> Result<(), UnpackError> {
    let mut is_pending = false;
    while let Some((block, rest)) = bytes.split_first_chunk::<BLOCK>() {
        let header = Header::from_bytes(block);
        match header.entry_type() {
            EntryType::GnuLongName | EntryType::GnuLongLink | EntryType::XHeader => {}
            EntryType::XGlobalHeader if is_pending => {
                return Err(malformed("its metadata is not followed by an entry"));
            }
            _ if is_pending && block.iter().all(|byte| *byte == 0) => {
                return Err(malformed("it ends between an entry and its metadata"));
            }
            _ => break,
        }
        is_pending = true;
        let size = header.entry_size().unwrap_or_default();
        if size > METADATA_LIMIT.into() {
            return Err(too_much_metadata());
        }
        bytes = rest.get((size + padding(size)) as usize..).unwrap_or_default();
    }
    Ok(())
}

fn too_much_metadata() -> UnpackError {
    UnpackError::TooBig { what: "bytes of names and attributes for one entry", limit: METADATA_LIMIT.into() }
}

impl Entry {
    fn new(parsed: &ParsedEntry<'_>, sparse: Option<SparseMap>) -> Result<Self, UnpackError> {
        // GNU tar ends a long name with a zero byte, others fill it up with them.
        let path = without_zeros(&parsed.path).to_vec();
        let link = without_zeros(parsed.link_target.as_deref().unwrap_or_default()).to_vec();
        if path.contains(&0) || link.contains(&0) {
            return Err(refused(&path, "its name contains a zero byte"));
        }
        let kind = match parsed.entry_type {
            // Archives of before 1988 have no folders, only names with a slash at the end.
            EntryType::Regular if path.ends_with(b"/") => Kind::Folder,
            EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse => Kind::File,
            EntryType::Directory => Kind::Folder,
            EntryType::Symlink => Kind::SymbolicLink,
            EntryType::Link => Kind::HardLink,
            // The parser knows them by the magic of their header; as an entry they would be skipped, and a name lost.
            EntryType::GnuLongName | EntryType::GnuLongLink | EntryType::XHeader => {
                return Err(refused(&path, "it is metadata with the header of another format"));
            }
            _ => Kind::Other,
        };
        // Links and folders have no content, whatever their size says: so every container tool reads them.
        let header_only = !matches!(kind, Kind::File | Kind::Other)
            || matches!(parsed.entry_type, EntryType::Block | EntryType::Char | EntryType::Fifo);
        let records = Records::read(parsed.pax.unwrap_or_default())?;
        if records.is_sparse && kind != Kind::File {
            return Err(refused(&path, "only files can be sparse"));
        }
        let entry = Self {
            path,
            link,
            kind,
            mode: parsed.mode,
            uid: parsed.uid,
            gid: parsed.gid,
            // GNU tar writes a time before 1970 as a number that wraps around.
            mtime: records.mtime.unwrap_or(parsed.mtime.cast_signed()),
            stored: if header_only { 0 } else { parsed.size },
            sparse: records.sparse_map(sparse)?,
            xattrs: parsed.xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        };
        if let Some(map) = &entry.sparse {
            map.check(entry.stored)?;
        }
        Ok(entry)
    }

    /// Returns the size of the unpacked file.
    pub(super) fn size(&self) -> u64 {
        self.sparse.as_ref().map_or(self.stored, |sparse| sparse.size)
    }
}

/// What the parser does not tell of pax records.
#[derive(Default)]
struct Records {
    mtime: Option<i64>,
    is_sparse: bool,
    size: Option<u64>,
}

impl Records {
    fn read(text: &[u8]) -> Result<Self, UnpackError> {
        let bad = || malformed("its pax records cannot be read");
        check_lengths(text).ok_or_else(bad)?;
        let mut records = Self::default();
        for record in PaxExtensions::new(text) {
            let record = record.map_err(|error| malformed(&error.to_string()))?;
            let value = record.value_bytes();
            records.is_sparse |= record.key_bytes().starts_with(b"GNU.sparse.");
            match record.key_bytes() {
                b"mtime" => records.mtime = Some(seconds(value).ok_or_else(bad)?),
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                    records.size = Some(number(value).ok_or_else(bad)?);
                }
                b"size" | b"uid" | b"gid" | b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                    number(value).ok_or_else(bad)?;
                }
                _ => {}
            }
        }
        Ok(records)
    }

    /// Returns the map of a sparse file. The parser takes a file of nothing but holes for an empty one.
    fn sparse_map(&self, parsed: Option<SparseMap>) -> Result<Option<SparseMap>, UnpackError> {
        if !self.is_sparse {
            return Ok(parsed);
        }
        let size = self.size.ok_or_else(|| malformed("a sparse file has no size"))?;
        Ok(Some(SparseMap { size, segments: parsed.map_or_else(Vec::new, |map| map.segments) }))
    }
}

/// Checks that the lengths of pax records lead to the end: the parser ignores everything after one that it cannot read
/// (<https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html>).
fn check_lengths(mut text: &[u8]) -> Option<()> {
    while !text.is_empty() {
        let digits = text.iter().position(|byte| *byte == b' ')?;
        let length = usize::try_from(number(&text[..digits])?).ok()?;
        text = text.get(length..).filter(|_| length > 0)?;
    }
    Some(())
}

impl SparseMap {
    /// Checks that the parts are in order, do not overlap, lie within the file, and are as long as the stored bytes.
    fn check(&self, stored: u64) -> Result<(), UnpackError> {
        let mut end = 0;
        let mut sum = 0_u64;
        for segment in &self.segments {
            let next = segment.offset.checked_add(segment.length);
            let Some(next) = next.filter(|next| segment.offset >= end && *next <= self.size) else {
                return Err(malformed("the map of a sparse file contradicts itself"));
            };
            end = next;
            sum += segment.length;
        }
        if sum == stored { Ok(()) } else { Err(malformed("a sparse file has another size than its map")) }
    }
}

fn parse_error(error: ParseError) -> UnpackError {
    match error {
        ParseError::MetadataTooLarge { .. } | ParseError::TooManyPendingEntries { .. } => too_much_metadata(),
        ParseError::TooManySparseEntries { .. } => {
            UnpackError::TooBig { what: "parts in a sparse file", limit: SEGMENT_LIMIT as u64 }
        }
        ParseError::Header(_) => malformed("a header has a wrong checksum, or a number that cannot be read"),
        other => malformed(&other.to_string()),
    }
}

pub(super) fn malformed(why: &str) -> UnpackError {
    UnpackError::Malformed(why.into())
}

/// Takes an error of our own out of the reader that it passed through.
pub(super) fn read_error(error: io::Error) -> UnpackError {
    match error.downcast::<UnpackError>() {
        Ok(error) => error,
        Err(error) => UnpackError::Read(error),
    }
}

/// Parses a decimal number and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// Parses the whole seconds of a time with a fraction; rounded down also before 1970.
fn seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().ok()?;
    let below = text.starts_with('-') && fraction.bytes().any(|byte| byte != b'0');
    Some(if below { whole.saturating_sub(1) } else { whole })
}

fn without_zeros(name: &[u8]) -> &[u8] {
    &name[..name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}
