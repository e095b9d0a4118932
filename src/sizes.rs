//! Sizes for people, and of what is on disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

/// How much there is of something on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    pub count: usize,
    pub bytes: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl Amount {
    /// Returns what files and folders take.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        paths.into_iter().fold(Self::default(), |sum, path| Self {
            count: sum.count + 1,
            bytes: sum.bytes + disk_usage(path),
        })
    }
}

/// Returns the bytes that a file takes on disk, or a folder with all that is in it. A file with several names counts by its share.
pub fn disk_usage(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.blocks() * 512 / meta.nlink().max(1);
    }
    let inner = fs::read_dir(path).into_iter().flatten().flatten();
    meta.blocks() * 512 + inner.map(|entry| disk_usage(&entry.path())).sum::<u64>()
}

/// Returns a size as people read it: `1.2 KiB`.
pub fn bytes_text(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => {
            let tenths = bytes.saturating_mul(10) / size;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1229, "1.2 KiB"),
            (23 << 10, "23.0 KiB"),
            (1 << 30, "1.0 GiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }
}
