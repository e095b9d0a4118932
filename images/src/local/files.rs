//! Files by name, in a folder or in a tar file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::ImageError;
use crate::image::Layers;
use crate::manifest::ManifestError;
use crate::store::StoreError;
use crate::unpack::{EntryKind, Source, TarStream, decoder};

/// More files than any archive of images has.
const ENTRY_LIMIT: usize = 100_000;
/// More than any archive has once it is decompressed.
const SIZE_LIMIT: u64 = 64 << 30;
/// As for symbolic links elsewhere.
const LINK_LIMIT: usize = 40;

/// Files by name.
pub(super) struct Files {
    /// The folder or archive, for messages.
    path: PathBuf,
    /// The transport of the name, for messages.
    form: &'static str,
    content: Content,
}

enum Content {
    Folder,
    Archive { file: File, index: HashMap<Vec<u8>, Member> },
}

enum Member {
    File {
        start: u64,
        size: u64,
    },
    /// `docker save` writes a layer once, and links to it from its other places.
    Link(Vec<u8>),
}

/// A reader and its size.
type OfSize<'a> = (Box<dyn Read + Send + 'a>, u64);

impl Source for BufReader<&File> {
    fn skip(&mut self, count: u64) -> io::Result<bool> {
        // A seek past the end succeeds; the next read notices.
        self.seek_relative(i64::try_from(count).map_err(io::Error::other)?)?;
        Ok(true)
    }
}

impl Files {
    pub(super) fn folder(path: &Path, form: &'static str) -> Self {
        Self { path: path.into(), form, content: Content::Folder }
    }

    /// Lists the files of a tar file; decompresses it into an unnamed file first if it is compressed.
    pub(super) fn archive(path: &Path, form: &'static str) -> Result<Self, ImageError> {
        let read = || StoreError::io("read", path);
        let mut file = File::open(path).map_err(read())?;
        if file.metadata().map_err(read())?.is_dir() {
            let why = "it is a folder; use `oci:` for a layout in a folder".into();
            return Err(ImageError::Form { path: path.into(), form, why });
        }
        let bad =
            |error: crate::UnpackError| ImageError::Form { path: path.into(), form, why: error.to_string() };
        let mut start = [0; 4];
        let compressed = file.read_exact_at(&mut start, 0).is_ok()
            && matches!(start, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd]);
        if compressed {
            let mut plain = tempfile::tempfile().map_err(read())?;
            let source = decoder(BufReader::with_capacity(64 << 10, &file)).map_err(bad)?;
            let copied = io::copy(&mut source.take(SIZE_LIMIT), &mut plain).map_err(read())?;
            if copied == SIZE_LIMIT {
                return Err(bad(crate::UnpackError::TooBig { what: "bytes", limit: SIZE_LIMIT }));
            }
            plain.seek(SeekFrom::Start(0)).map_err(read())?;
            file = plain;
        }
        let mut index = HashMap::new();
        let mut stream = TarStream::new(BufReader::new(&file));
        while let Some(entry) = stream.next().map_err(bad)? {
            let member = match entry.kind {
                EntryKind::File => Member::File { start: stream.position(), size: entry.stored },
                EntryKind::SymbolicLink => Member::Link(join(&entry.path, &entry.link)),
                EntryKind::HardLink => Member::Link(plain(&entry.link)),
                EntryKind::Folder | EntryKind::Other => continue,
            };
            index.insert(plain(&entry.path), member);
            if index.len() > ENTRY_LIMIT {
                return Err(bad(crate::UnpackError::TooBig { what: "files", limit: ENTRY_LIMIT as u64 }));
            }
        }
        drop(stream);
        Ok(Self { path: path.into(), form, content: Content::Archive { file, index } })
    }

    /// Opens a file; None when it does not exist.
    pub(super) fn open(&self, name: &str) -> Result<Option<OfSize<'_>>, ImageError> {
        match &self.content {
            Content::Folder => {
                let path = self.path.join(name);
                match File::open(&path).and_then(|file| Ok((file.metadata()?, file))) {
                    Ok((meta, file)) => Ok(Some((Box::new(file), meta.len()))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(StoreError::io("read", &path)(error).into()),
                }
            }
            Content::Archive { file, index } => {
                let mut name = name.as_bytes();
                for _ in 0..LINK_LIMIT {
                    match index.get(name) {
                        Some(Member::Link(target)) => name = target,
                        Some(Member::File { start, size }) => {
                            let part = Part { file, position: *start, left: *size };
                            return Ok(Some((Box::new(part), *size)));
                        }
                        None => break,
                    }
                }
                Ok(None)
            }
        }
    }

    /// Reads a small file; None when it does not exist or is larger.
    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
        let Some((file, size)) = self.open(name)? else { return Ok(None) };
        if size > limit {
            return Ok(None);
        }
        let mut content = Vec::new();
        let error = StoreError::io("read", &self.path.join(name));
        file.take(limit).read_to_end(&mut content).map_err(error)?;
        Ok(Some(content))
    }

    /// Returns the error for content that is not of the form.
    pub(super) fn wrong(&self, why: impl Into<String>) -> ImageError {
        ImageError::Form { path: self.path.clone(), form: self.form, why: why.into() }
    }

    /// Returns the error for an unusable document.
    pub(super) fn manifest_error(&self, source: ManifestError) -> ImageError {
        ImageError::Manifest { at: format!("{}:{}", self.form, self.path.display()), source }
    }

    /// Returns the error for a name that no image has, or for several images without one.
    pub(super) fn which(&self, wanted: Option<&str>, offered: &[String]) -> ImageError {
        let offered = if offered.is_empty() { "unnamed ones".into() } else { offered.join(", ") };
        ImageError::Which { path: self.path.clone(), wanted: wanted.map(String::from), offered }
    }
}

/// The layers of an image in files.
pub(super) struct FileLayers {
    pub(super) files: Files,
    pub(super) names: Vec<String>,
}

impl Layers for FileLayers {
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let name = &self.names[layer];
        match self.files.open(name)? {
            Some((file, _)) => Ok(file),
            None => Err(self.files.wrong(format!("{name} is missing"))),
        }
    }
}

/// A part of a file, read by position: several may be read at once.
struct Part<'a> {
    file: &'a File,
    position: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.position)?;
        self.position += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Returns a name without dots: `b` for `./a/../b`.
fn plain(name: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// Returns the target of a link in an archive.
fn join(name: &[u8], target: &[u8]) -> Vec<u8> {
    let folder = name.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |end| &name[..end]);
    plain(&[folder, b"/", target].concat())
}
