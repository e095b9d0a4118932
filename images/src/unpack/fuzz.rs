//! Random archives made of the parts of hostile ones, with some bytes changed.
//!
//! `CODEBRIDGE_FUZZ_ROUNDS` sets how many, `CODEBRIDGE_FUZZ_SEED` the first seed: a failure names its seed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use tar::EntryType;

use super::archive::Archive;
use super::staging::StagingFolder;

/// As many as a test has time for.
const ROUNDS: u64 = 400;

/// Reproducible pseudorandom numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn name(&mut self) -> String {
        let parts: &[&str] = &[
            "a", "b", "c", "d", "l", "a", "b", "c", "d", "l", "a", "b", "..", ".", "", ".wh.a", ".wh.l",
            ".wh..wh..opq", ".wh..", "\u{e4}",
        ];
        let count = 1 + self.below(4);
        let mut name: Vec<_> = (0..count).map(|_| self.pick(parts)).collect();
        if self.one_in(40) {
            name.insert(0, "");
        }
        name.join("/")
    }

    fn target(&mut self, staging: &StagingFolder) -> String {
        match self.below(6) {
            0 => staging.beside(),
            1 => format!("{}/file", staging.beside()),
            2 => format!("{}beside", "../".repeat(1 + self.below(4))),
            3 => format!("/{}", self.name()),
            _ => self.name(),
        }
    }
}

fn layer(random: &mut Random, staging: &StagingFolder) -> Vec<u8> {
    let mut archive = Archive::new();
    for _ in 0..random.below(12) {
        let (name, mode) = (random.name(), random.next() as u32 & 0o7777);
        archive = match random.below(14) {
            0..=3 => archive.entry(&name, EntryType::Directory, mode, "", b""),
            4..=6 => archive.entry(&name, EntryType::Regular, mode, "", &vec![b'x'; random.below(2000)]),
            7 | 8 => archive.entry(&name, EntryType::Symlink, mode, &random.target(staging), b""),
            9 | 10 => archive.entry(&name, EntryType::Link, mode, &random.target(staging), b""),
            11 => archive.entry(&name, random_kind(random), mode, "", b""),
            12 => {
                let path = random.target(staging);
                let records: [(&str, &[u8]); 3] =
                    [("path", path.as_bytes()), ("SCHILY.xattr.user.x", b"y"), ("mtime", b"-1.5")];
                archive.pax(&records[..1 + random.below(3)]).file(&name, b"pax")
            }
            _ => {
                let size = (random.below(1 << 20)).to_string();
                let map = format!("{},3", random.below(4096));
                archive
                    .pax(&[("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.map", map.as_bytes())])
                    .file(&name, b"abc")
            }
        };
    }
    let mut bytes = if random.one_in(10) { archive.0 } else { archive.done() };
    if random.one_in(4) {
        change_bytes(random, &mut bytes);
    }
    match random.below(8) {
        0 => bytes = zstd::encode_all(bytes.as_slice(), 1).unwrap_or_default(),
        1 => {
            let mut encoder = flate2::read::GzEncoder::new(bytes.as_slice(), flate2::Compression::fast());
            let mut packed = Vec::new();
            std::io::Read::read_to_end(&mut encoder, &mut packed).unwrap();
            bytes = packed;
        }
        _ => {}
    }
    if random.one_in(12) {
        change_bytes(random, &mut bytes);
    }
    if random.one_in(12) {
        bytes.truncate(random.below(bytes.len() + 1));
    }
    bytes
}

fn random_kind(random: &mut Random) -> EntryType {
    EntryType::new(*random.pick(&[&b'3', &b'4', &b'6', &b'7', &b'S', &b'g', &b'Z', &b'V']))
}

/// Changes bytes, and corrects the checksum half of the time: without it, nothing after a header is reached.
fn change_bytes(random: &mut Random, bytes: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..1 + random.below(4) {
        let place = random.below(bytes.len());
        bytes[place] = random.next() as u8;
        let start = place / 512 * 512;
        if random.one_in(2)
            && let Some(block) = bytes.get_mut(start..start + 512)
        {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

/// Lists a folder for comparison; panics at what must not exist.
fn inspect(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        let shown = path.display();
        assert!(kind.is_dir() || kind.is_file() || kind.is_symlink(), "{shown} is something else");
        assert!(!kind.is_char_device() && !kind.is_block_device() && !kind.is_fifo(), "{shown} is a device");
        assert_eq!(meta.uid(), rustix::process::getuid().as_raw(), "{shown} belongs to another");
        if !kind.is_symlink() {
            assert_eq!(meta.mode() & 0o7022, 0, "{shown} has mode {:o}", meta.mode());
        }
        let content = match kind.is_file() {
            true => crate::Digest::of(&fs::read(&path).unwrap_or_default()).to_string(),
            false => fs::read_link(&path).map(|target| target.display().to_string()).unwrap_or_default(),
        };
        found.push(format!("{shown} {:o} {} {content}", meta.mode(), meta.nlink()));
        if kind.is_dir() {
            inspect(&path, found);
        }
    }
}

#[test]
fn nothing_leads_out_and_nothing_unexpected_is_created() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let (rounds, first) =
        (number("CODEBRIDGE_FUZZ_ROUNDS").unwrap_or(ROUNDS), number("CODEBRIDGE_FUZZ_SEED").unwrap_or(1));
    let mut unpacked = 0;
    for seed in first..first + rounds {
        let staging = StagingFolder::new();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let layers: Vec<_> = (0..1 + random.below(3)).map(|_| layer(&mut random, &staging)).collect();
        let layers: Vec<_> = layers.iter().map(Vec::as_slice).collect();
        let checked = std::panic::catch_unwind(|| {
            let done = staging.unpack(&layers, None);
            staging.assert_untouched();
            let mut found = Vec::new();
            inspect(&staging.root(), &mut found);
            if done.is_err() {
                return 0;
            }
            // The same layers give the same image, in whatever order a folder lists its names.
            fs::remove_dir_all(staging.root()).unwrap();
            fs::create_dir(staging.root()).unwrap();
            staging.unpack(&layers, None).unwrap();
            let mut again = Vec::new();
            inspect(&staging.root(), &mut again);
            found.sort();
            again.sort();
            assert_eq!(found, again);
            1
        });
        unpacked += checked.unwrap_or_else(|_| panic!("with CODEBRIDGE_FUZZ_SEED={seed}"));
    }
    // Without any valid archive, only the first check would be tested.
    assert!(rounds < ROUNDS || unpacked * 20 > rounds, "{unpacked} of {rounds}");
}
