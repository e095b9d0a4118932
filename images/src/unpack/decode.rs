//! From the bytes of a blob to those of its tar archive, decompressed and hashed on a thread of its own while files are
//! written.

use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::bufread::MultiGzDecoder;

use super::error::UnpackError;
use super::tar::{Source, malformed};
use crate::digest::{Digest, Hasher};

/// Large enough that passing a chunk on costs nothing, small enough to stay in the cache.
const CHUNK: usize = 128 << 10;
/// Chunks between the two threads.
const AHEAD: usize = 8;
/// For compressed bytes.
const INPUT_BUFFER: usize = 64 << 10;
/// A zstd frame may ask for more memory than this for its window; the command line tool refuses it too
/// (<https://man.archlinux.org/man/zstd.1>, `--memory`).
const ZSTD_WINDOW_LOG: u32 = 27;

/// Returns a reader that decompresses. The first bytes say how, and are right more often than media types.
pub(crate) fn decoder<'a>(mut source: impl BufRead + 'a) -> Result<Box<dyn Read + 'a>, UnpackError> {
    match source.fill_buf().map_err(UnpackError::Read)? {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(source))),
        // A frame, or a skippable one, with which seekable variants start.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source).map_err(UnpackError::Read)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(UnpackError::Read)?;
            Ok(Box::new(decoder))
        }
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            Err(malformed("it is compressed with xz, which is not supported"))
        }
        [b'B', b'Z', b'h', ..] => Err(malformed("it is compressed with bzip2, which is not supported")),
        _ => Ok(Box::new(source)),
    }
}

/// Runs `consume` over the decompressed bytes of `source`, at most `limit` of them, until `cancelled`.
///
/// With a digest, all of the bytes together have to match it.
pub(super) fn with_decoded<T>(
    source: impl Read + Send,
    expected: Option<&Digest>,
    limit: u64,
    cancelled: &AtomicBool,
    consume: impl FnOnce(&mut Pipe<'_>) -> Result<T, UnpackError>,
) -> Result<T, UnpackError> {
    let (sender, receiver) = sync_channel(AHEAD);
    let (back, spares) = sync_channel(AHEAD + 2);
    thread::scope(|scope| {
        let hasher = expected.map(Digest::hasher);
        let reading = thread::Builder::new()
            .name("layer".into())
            .spawn_scoped(scope, move || produce(source, hasher, &sender, &spares))
            .map_err(UnpackError::Read)?;
        let mut pipe = Pipe { receiver, back, chunk: Vec::new(), position: 0, left: limit, limit, cancelled };
        let done = consume(&mut pipe);
        // Ends the thread if it still has chunks to send.
        drop(pipe);
        let digest = reading.join().map_err(|_| malformed("the thread that decompresses it failed"))?;
        let done = done?;
        match (expected, digest) {
            (Some(expected), Some(actual)) if *expected != actual => {
                Err(UnpackError::WrongContent { expected: expected.clone(), actual })
            }
            _ => Ok(done),
        }
    })
}

/// Reads, decompresses and sends chunks; returns the digest of all bytes.
fn produce(
    source: impl Read,
    mut hasher: Option<Hasher>,
    chunks: &SyncSender<Result<Vec<u8>, UnpackError>>,
    spares: &Receiver<Vec<u8>>,
) -> Option<Digest> {
    let mut decoder = match decoder(io::BufReader::with_capacity(INPUT_BUFFER, source)) {
        Ok(decoder) => decoder,
        Err(error) => {
            let _ = chunks.send(Err(error));
            return None;
        }
    };
    loop {
        let mut chunk = spares.try_recv().unwrap_or_default();
        chunk.clear();
        chunk.reserve_exact(CHUNK);
        match decoder.by_ref().take(CHUNK as u64).read_to_end(&mut chunk) {
            Ok(0) => return hasher.map(Hasher::finish),
            Ok(_) => {
                if let Some(hasher) = &mut hasher {
                    hasher.update(&chunk);
                }
                // The receiver stopped: the archive is bad.
                chunks.send(Ok(chunk)).ok()?;
            }
            Err(error) => {
                let _ = chunks.send(Err(UnpackError::Read(error)));
                return None;
            }
        }
    }
}

/// The receiver of the decompressed bytes.
pub(super) struct Pipe<'a> {
    receiver: Receiver<Result<Vec<u8>, UnpackError>>,
    back: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
    position: usize,
    left: u64,
    limit: u64,
    cancelled: &'a AtomicBool,
}

impl Pipe<'_> {
    /// Returns the number of bytes so far.
    pub(super) fn passed(&self) -> u64 {
        self.limit - self.left
    }
}

impl BufRead for Pipe<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position == self.chunk.len() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(io::Error::other(UnpackError::Cancelled));
            }
            let used = std::mem::take(&mut self.chunk);
            if used.capacity() > 0 {
                let _ = self.back.try_send(used);
            }
            self.position = 0;
            match self.receiver.recv() {
                Ok(Ok(chunk)) => self.chunk = chunk,
                Ok(Err(error)) => return Err(io::Error::other(error)),
                Err(_) => return Ok(&[]),
            }
            self.left = self
                .left
                .checked_sub(self.chunk.len() as u64)
                .ok_or_else(|| io::Error::other(UnpackError::TooBig { what: "bytes", limit: self.limit }))?;
        }
        Ok(&self.chunk[self.position..])
    }

    fn consume(&mut self, count: usize) {
        self.position = (self.position + count).min(self.chunk.len());
    }
}

impl Source for Pipe<'_> {}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn all(source: &[u8], expected: Option<&Digest>, limit: u64) -> Result<Vec<u8>, UnpackError> {
        with_decoded(source, expected, limit, &AtomicBool::new(false), |pipe| {
            let mut content = Vec::new();
            pipe.read_to_end(&mut content).map_err(super::super::tar::read_error)?;
            Ok(content)
        })
    }

    #[test]
    fn compressions_are_detected_by_their_first_bytes() {
        let plain: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let digest = Digest::of(&plain);
        let two = [gzip(&plain[..777]), gzip(&plain[777..])].concat();
        let zstd = zstd::encode_all(plain.as_slice(), 1).unwrap();
        for source in [&plain, &gzip(&plain), &two, &zstd] {
            assert!(all(source, Some(&digest), u64::MAX).unwrap() == plain);
        }
        assert_eq!(all(b"", Some(&Digest::of(b"")), 10).unwrap(), b"");
        assert!(matches!(all(b"\xfd7zXZ\0", None, 10), Err(UnpackError::Malformed(_))));
    }

    #[test]
    fn wrong_incomplete_and_oversized_content_is_an_error() {
        let zeros = gzip(&vec![0; 20_000_000]);
        assert!(zeros.len() < 200_000);
        assert!(matches!(all(&zeros, None, 10_000_000), Err(UnpackError::TooBig { .. })));
        assert!(matches!(all(&zeros[..zeros.len() / 2], None, u64::MAX), Err(UnpackError::Read(_))));
        let other = Digest::of(b"other");
        assert!(matches!(all(&zeros, Some(&other), u64::MAX), Err(UnpackError::WrongContent { .. })));
        let zstd = zstd::encode_all(zeros.as_slice(), 1).unwrap();
        assert!(matches!(all(&zstd[..zstd.len() / 2], None, u64::MAX), Err(UnpackError::Read(_))));
    }

    #[test]
    fn a_cancelled_reader_ends_its_thread_too() {
        let cancelled = AtomicBool::new(false);
        let endless = io::repeat(7);
        let error = with_decoded(endless, None, u64::MAX, &cancelled, |pipe| {
            pipe.fill_buf().map_err(super::super::tar::read_error)?;
            pipe.consume(CHUNK);
            cancelled.store(true, Ordering::Relaxed);
            pipe.fill_buf().map(drop).map_err(super::super::tar::read_error)
        });
        assert!(matches!(error, Err(UnpackError::Cancelled)), "{error:?}");
    }
}
