//! Archives made of the parts of hostile ones, with some bytes changed: no entry may lead out of the root.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use codebridge_fuzz::{Choices, fuzz};
use tar::EntryType;

use super::archive::Archive;
use super::staging::StagingFolder;

fn name(choices: &mut Choices<'_>) -> String {
    let parts: &[&str] = &[
        "a", "b", "c", "d", "l", "a", "b", "c", "d", "l", "a", "b", "..", ".", "", ".wh.a", ".wh.l",
        ".wh..wh..opq", ".wh..", "\u{e4}",
    ];
    let count = 1 + choices.below(4);
    let mut name: Vec<_> = (0..count).map(|_| choices.pick(parts)).collect();
    if choices.one_in(40) {
        name.insert(0, "");
    }
    name.join("/")
}

fn target(choices: &mut Choices<'_>, staging: &StagingFolder) -> String {
    match choices.below(6) {
        0 => staging.beside(),
        1 => format!("{}/file", staging.beside()),
        2 => format!("{}beside", "../".repeat(1 + choices.below(4))),
        3 => format!("/{}", name(choices)),
        _ => name(choices),
    }
}

fn layer(choices: &mut Choices<'_>, staging: &StagingFolder) -> Vec<u8> {
    let mut archive = Archive::new();
    for _ in 0..choices.below(12) {
        let (name, mode) = (name(choices), choices.below(0o10000) as u32);
        archive = match choices.below(14) {
            0..=3 => archive.entry(&name, EntryType::Directory, mode, "", b""),
            4..=6 => archive.entry(&name, EntryType::Regular, mode, "", &vec![b'x'; choices.below(2000)]),
            7 | 8 => archive.entry(&name, EntryType::Symlink, mode, &target(choices, staging), b""),
            9 | 10 => archive.entry(&name, EntryType::Link, mode, &target(choices, staging), b""),
            11 => archive.entry(&name, kind(choices), mode, "", b""),
            12 => {
                let path = target(choices, staging);
                let records: [(&str, &[u8]); 3] =
                    [("path", path.as_bytes()), ("SCHILY.xattr.user.x", b"y"), ("mtime", b"-1.5")];
                archive.pax(&records[..1 + choices.below(3)]).file(&name, b"pax")
            }
            _ => {
                let size = choices.below(1 << 20).to_string();
                let map = format!("{},3", choices.below(4096));
                archive
                    .pax(&[("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.map", map.as_bytes())])
                    .file(&name, b"abc")
            }
        };
    }
    let mut bytes = if choices.one_in(10) { archive.0 } else { archive.done() };
    if choices.one_in(4) {
        change_bytes(choices, &mut bytes);
    }
    match choices.below(8) {
        6 => bytes = zstd::encode_all(bytes.as_slice(), 1).unwrap_or_default(),
        7 => {
            let mut encoder = flate2::read::GzEncoder::new(bytes.as_slice(), flate2::Compression::fast());
            let mut packed = Vec::new();
            std::io::Read::read_to_end(&mut encoder, &mut packed).unwrap();
            bytes = packed;
        }
        _ => {}
    }
    if choices.one_in(12) {
        change_bytes(choices, &mut bytes);
    }
    if choices.one_in(12) {
        bytes.truncate(choices.below(bytes.len() + 1));
    }
    bytes
}

fn kind(choices: &mut Choices<'_>) -> EntryType {
    EntryType::new(b"3467SgZV"[choices.below(8)])
}

/// Changes bytes, and corrects the checksum half of the time: without it, nothing after a header is reached.
fn change_bytes(choices: &mut Choices<'_>, bytes: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..1 + choices.below(4) {
        let place = choices.below(bytes.len());
        bytes[place] = choices.byte();
        let start = place / 512 * 512;
        if choices.one_in(2)
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

/// Unpacks layers, and returns what is in the root if they are valid.
fn unpacked(staging: &StagingFolder, layers: &[&[u8]]) -> Option<Vec<String>> {
    let done = staging.unpack(layers, None);
    staging.assert_untouched();
    let mut found = Vec::new();
    inspect(&staging.root(), &mut found);
    found.sort();
    done.ok().map(|()| found)
}

#[test]
fn nothing_leads_out_and_nothing_unexpected_is_created() {
    let valid = std::cell::Cell::new((0_u64, 0_u64));
    fuzz("layers", &[], |bytes| {
        let staging = StagingFolder::new();
        let mut choices = Choices::new(bytes);
        let layers: Vec<_> = (0..1 + choices.below(3)).map(|_| layer(&mut choices, &staging)).collect();
        let layers: Vec<_> = layers.iter().map(Vec::as_slice).collect();
        let found = unpacked(&staging, &layers);
        let (all, some) = valid.get();
        valid.set((all + 1, some + u64::from(found.is_some())));
        let Some(found) = found else { return };
        // The same layers give the same image, in whatever order a folder lists its names.
        fs::remove_dir_all(staging.root()).unwrap();
        fs::create_dir(staging.root()).unwrap();
        assert_eq!(Some(found), unpacked(&staging, &layers));
    });
    // Without any valid archive, only the first check would be tested.
    let (all, some) = valid.get();
    assert!(some * 20 > all, "{some} of {all} are valid");
}

/// Any bytes as an archive.
#[test]
fn archives_never_lead_out_of_the_root() {
    fuzz("archives", &["ustar", "././@LongLink", "\x1f\u{8b}", "path="], |bytes| {
        let staging = StagingFolder::new();
        unpacked(&staging, &[bytes]);
    });
}
