//! Reads tar archives as the unpacker needs them: entry by entry, from a stream, with a bound on everything.
//!
//! The fields of a header are the `tar` crate's to parse; what spans several blocks is read here, because names, maps of
//! sparse files and attributes are as long as the archive says, and an archive may say anything. Knows ustar, GNU long
//! names and sparse files, and pax with its three kinds of sparse files
//! (<https://www.gnu.org/software/tar/manual/html_node/Sparse-Formats.html>).

use std::io::{self, BufRead};

use tar::{EntryType, GnuExtSparseHeader, Header};

use super::error::{UnpackError, shown};
use super::sparse::{self, Segment, Sparse, SparseMap};

const BLOCK: usize = 512;
/// What precedes an entry: long names, attributes. PATH_MAX is 4096, one attribute at most 64 KiB.
const EXTENSION_LIMIT: u64 = 1 << 20;

/// What archives are read from.
pub(crate) trait Source: BufRead {
    /// Passes over so many bytes; false when there are not so many.
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

/// What an entry is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    SymbolicLink,
    HardLink,
    /// Devices, pipes, and what only other systems know.
    Other,
}

/// An entry's header, and all that came before it.
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
    /// Where they go, when not all one after the other.
    pub(super) sparse: Option<SparseMap>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// How large the file will look.
    pub(super) fn size(&self) -> u64 {
        self.sparse.as_ref().map_or(self.stored, |sparse| sparse.size)
    }
}

/// An archive being read.
pub(crate) struct TarStream<R> {
    inner: R,
    /// Of the entry at hand: bytes not read yet, and what fills its last block.
    left: u64,
    padding: u64,
    /// Whether the archive said that it ends here.
    pub(super) complete: bool,
}

/// What pax records and GNU entries say of the entry that follows them.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<i64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: Sparse,
    bytes: u64,
}

impl<R: Source> TarStream<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, left: 0, padding: 0, complete: false }
    }

    /// What it is read from, which is right at an entry's content after [`Self::next`] gave it.
    pub(crate) fn source(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The next entry; what is left of the one before is passed over.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, UnpackError> {
        self.pass_over()?;
        let mut extensions = Extensions::default();
        loop {
            let Some(block) = self.header()? else { return Ok(None) };
            let header = Header::from_byte_slice(&block);
            let size = field(&header.as_old().size, header.entry_size())?;
            match header.entry_type() {
                EntryType::XGlobalHeader => self.extension(&mut extensions, size).map(drop)?,
                EntryType::XHeader => {
                    let records = self.extension(&mut extensions, size)?;
                    extensions.pax(&records)?;
                }
                EntryType::GNULongName => {
                    let mut name = self.extension(&mut extensions, size)?;
                    strip_zeros(&mut name);
                    extensions.path.get_or_insert(name);
                }
                EntryType::GNULongLink => {
                    let mut name = self.extension(&mut extensions, size)?;
                    strip_zeros(&mut name);
                    extensions.link.get_or_insert(name);
                }
                _ => return self.entry(header, extensions).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header, extensions: Extensions) -> Result<Entry, UnpackError> {
        let old = header.as_old();
        let path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link =
            extensions.link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        if path.contains(&0) || link.contains(&0) {
            return Err(UnpackError::Entry { entry: shown(&path), why: "its name holds a zero byte" });
        }
        let kind = match header.entry_type() {
            // Archives of before 1988 have no folders, only names with a slash at the end.
            EntryType::Regular if path.ends_with(b"/") => Kind::Folder,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
            EntryType::Directory => Kind::Folder,
            EntryType::Symlink => Kind::SymbolicLink,
            EntryType::Link => Kind::HardLink,
            _ => Kind::Other,
        };
        // Links and folders have no content, whatever their size says: so every container tool reads them.
        let header_only = !matches!(kind, Kind::File | Kind::Other)
            || matches!(header.entry_type(), EntryType::Block | EntryType::Char | EntryType::Fifo);
        let size = match extensions.size {
            _ if header_only => 0,
            Some(size) => size,
            None => field(&old.size, header.entry_size())?,
        };
        let mode = field(&old.mode, header.mode())?;
        let mut entry = Entry {
            path,
            link,
            kind,
            mode,
            uid: extensions.uid.map_or_else(|| field(&old.uid, header.uid()), Ok)?,
            gid: extensions.gid.map_or_else(|| field(&old.gid, header.gid()), Ok)?,
            mtime: match extensions.mtime {
                Some(mtime) => mtime,
                // Before 1970 as GNU writes it wraps around, which is what the cast undoes.
                None => field(&old.mtime, header.mtime())?.cast_signed(),
            },
            stored: size,
            sparse: None,
            xattrs: extensions.xattrs,
        };
        self.left = size;
        self.padding = padding(size);
        if header.entry_type() == EntryType::GNUSparse {
            let map = self.gnu_sparse(header)?;
            entry.sparse = Some(map);
        } else if kind == Kind::File && extensions.sparse.is_used() {
            if let Some(name) = &extensions.sparse.name {
                entry.path.clone_from(name);
            }
            let map = match extensions.sparse.needs_map() {
                false => extensions.sparse.into_map()?,
                true => self.pax_sparse(&extensions.sparse)?,
            };
            entry.sparse = Some(map);
            entry.stored = self.left;
        }
        if let Some(map) = &entry.sparse {
            map.check(entry.stored)?;
        }
        Ok(entry)
    }

    /// More of the entry's content, at most `limit` bytes; empty at its end.
    pub(super) fn data(&mut self, limit: u64) -> Result<&[u8], UnpackError> {
        let wanted = self.left.min(limit);
        if wanted == 0 {
            return Ok(&[]);
        }
        let available = self.inner.fill_buf().map_err(read_error)?;
        if available.is_empty() {
            return Err(malformed("it ends in the middle of a file"));
        }
        Ok(&available[..available.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))])
    }

    /// Says that so much of what [`Self::data`] gave was used.
    pub(super) fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.left -= count as u64;
    }

    /// Reads to the very end of the stream, also what follows the archive.
    pub(super) fn drain(mut self) -> Result<(), UnpackError> {
        loop {
            let count = self.inner.fill_buf().map_err(read_error)?.len();
            if count == 0 {
                return Ok(());
            }
            self.inner.consume(count);
        }
    }

    fn pass_over(&mut self) -> Result<(), UnpackError> {
        let left = self.left + self.padding;
        (self.left, self.padding) = (0, 0);
        match self.inner.skip(left).map_err(read_error)? {
            true => Ok(()),
            false => Err(malformed("it ends in the middle of an entry")),
        }
    }

    /// The next block that is a header; None at the end of the archive.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, UnpackError> {
        let mut block = [0; BLOCK];
        if !self.block(&mut block)? {
            return Ok(None);
        }
        if block.iter().all(|byte| *byte == 0) {
            self.complete = true;
            return Ok(None);
        }
        // The sum of the header with its own field taken as spaces.
        let sum = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum::<u32>() + 8 * 32;
        match Header::from_byte_slice(&block).cksum() {
            Ok(expected) if expected == sum => Ok(Some(block)),
            _ => Err(malformed("a header's checksum is wrong")),
        }
    }

    /// Reads a block; false when nothing at all is left.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, UnpackError> {
        let mut filled = 0;
        while filled < BLOCK {
            let available = self.inner.fill_buf().map_err(read_error)?;
            if available.is_empty() {
                return if filled == 0 {
                    Ok(false)
                } else {
                    Err(malformed("it ends in the middle of a header"))
                };
            }
            let count = available.len().min(BLOCK - filled);
            block[filled..filled + count].copy_from_slice(&available[..count]);
            self.inner.consume(count);
            filled += count;
        }
        Ok(true)
    }

    /// The content of an entry that speaks of the next one.
    fn extension(&mut self, extensions: &mut Extensions, size: u64) -> Result<Vec<u8>, UnpackError> {
        extensions.bytes = extensions.bytes.saturating_add(size).saturating_add(BLOCK as u64);
        if extensions.bytes > EXTENSION_LIMIT {
            return Err(UnpackError::TooBig {
                what: "bytes of names and attributes for one entry",
                limit: EXTENSION_LIMIT,
            });
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        (self.left, self.padding) = (size, padding(size));
        while self.left > 0 {
            let data = self.data(u64::MAX)?;
            content.extend_from_slice(data);
            let count = data.len();
            self.consume(count);
        }
        self.pass_over()?;
        Ok(content)
    }

    /// The map of an old GNU sparse file: in its header and the blocks after it.
    fn gnu_sparse(&mut self, header: &Header) -> Result<SparseMap, UnpackError> {
        let bad = |_| malformed("the map of a sparse file cannot be read");
        let gnu = header.as_gnu().ok_or_else(|| malformed("a sparse file without a GNU header"))?;
        let mut map = SparseMap { size: gnu.real_size().map_err(bad)?, segments: Vec::new() };
        let mut add = |sparse: &[tar::GnuSparseHeader]| -> Result<(), UnpackError> {
            for part in sparse.iter().filter(|part| !part.is_empty()) {
                let (start, length) = (part.offset().map_err(bad)?, part.length().map_err(bad)?);
                sparse::add(&mut map.segments, Segment { start, length })?;
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut extended = gnu.is_extended();
        while extended {
            let mut more = GnuExtSparseHeader::new();
            let mut block = [0; BLOCK];
            if !self.block(&mut block)? {
                return Err(malformed("it ends in the map of a sparse file"));
            }
            more.as_mut_bytes().copy_from_slice(&block);
            add(&more.sparse)?;
            extended = more.is_extended();
        }
        Ok(map)
    }

    /// The map of a pax sparse file of version 1.0: decimal lines before the content, filled up to a block.
    fn pax_sparse(&mut self, sparse: &Sparse) -> Result<SparseMap, UnpackError> {
        let mut segments = Vec::new();
        let mut read = 0;
        let count = self.decimal_line(&mut read)?;
        for _ in 0..count {
            let (start, length) = (self.decimal_line(&mut read)?, self.decimal_line(&mut read)?);
            sparse::add(&mut segments, Segment { start, length })?;
        }
        let mut fill = padding(read);
        while fill > 0 {
            let count = self.data(fill)?.len();
            if count == 0 {
                return Err(malformed("it ends in the map of a sparse file"));
            }
            self.consume(count);
            fill -= count as u64;
        }
        Ok(SparseMap { size: sparse.real_size()?, segments })
    }

    fn decimal_line(&mut self, read: &mut u64) -> Result<u64, UnpackError> {
        let mut number: Option<u64> = None;
        loop {
            let byte =
                *self.data(1)?.first().ok_or_else(|| malformed("it ends in the map of a sparse file"))?;
            self.consume(1);
            *read += 1;
            match (byte, number) {
                (b'\n', Some(number)) => return Ok(number),
                (b'0'..=b'9', _) => {
                    let digit = u64::from(byte - b'0');
                    let next =
                        number.unwrap_or(0).checked_mul(10).and_then(|number| number.checked_add(digit));
                    number = Some(next.ok_or_else(|| malformed("the map of a sparse file cannot be read"))?);
                }
                _ => return Err(malformed("the map of a sparse file cannot be read")),
            }
        }
    }
}

/// A number of a header. One that is left blank is zero, for every other reader too.
fn field<T: Default>(text: &[u8], parsed: io::Result<T>) -> Result<T, UnpackError> {
    match parsed {
        Ok(number) => Ok(number),
        Err(_) if text.iter().all(|byte| matches!(byte, 0 | b' ')) => Ok(T::default()),
        Err(_) => Err(malformed("a header's number cannot be read")),
    }
}

impl Extensions {
    /// Reads pax records, `LENGTH KEY=VALUE\n` each, where the length counts itself
    /// (<https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html>).
    fn pax(&mut self, mut records: &[u8]) -> Result<(), UnpackError> {
        let bad = || malformed("its pax records cannot be read");
        while !records.is_empty() {
            let space = records.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
            let length = usize::try_from(number(&records[..space]).ok_or_else(bad)?).map_err(|_| bad())?;
            if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
                return Err(bad());
            }
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
            self.record(&record[..equals], &record[equals + 1..])?;
            records = &records[length..];
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        let bad = || malformed("its pax records cannot be read");
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value).ok_or_else(bad)?),
            b"uid" => self.uid = Some(number(value).ok_or_else(bad)?),
            b"gid" => self.gid = Some(number(value).ok_or_else(bad)?),
            b"mtime" => self.mtime = Some(seconds(value).ok_or_else(bad)?),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                } else if let Some(rest) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.record(rest, value)?;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn malformed(why: &str) -> UnpackError {
    UnpackError::Malformed(why.into())
}

/// Errors of our own that passed through a reader come out as they were.
pub(super) fn read_error(error: io::Error) -> UnpackError {
    match error.downcast::<UnpackError>() {
        Ok(error) => error,
        Err(error) => UnpackError::Read(error),
    }
}

/// A decimal number and nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// The whole seconds of a time with a fraction; rounded down also before 1970.
fn seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().ok()?;
    let below = text.starts_with('-') && fraction.bytes().any(|byte| byte != b'0');
    Some(if below { whole.saturating_sub(1) } else { whole })
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn strip_zeros(name: &mut Vec<u8>) {
    while name.last() == Some(&0) {
        name.pop();
    }
}
