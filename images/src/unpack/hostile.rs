//! Hostile archives. Each is refused, and nothing outside the folder is touched.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tar::EntryType;

use super::UnpackError;
use super::archive::Archive;
use super::layer::{Limits, Unpacker};
use super::staging::{LIMITS, StagingFolder};
use crate::digest::Digest;

#[track_caller]
fn refused(archive: impl FnOnce(&StagingFolder) -> Vec<u8>) -> UnpackError {
    let staging = StagingFolder::new();
    let archive = archive(&staging);
    let error = staging.unpack(&[&archive], None).unwrap_err();
    staging.assert_untouched();
    error
}

#[track_caller]
fn escapes(archive: impl FnOnce(&StagingFolder) -> Vec<u8>) {
    let error = refused(archive);
    assert!(matches!(error, UnpackError::Escape { .. }), "{error}");
}

#[test]
fn names_that_go_up_are_refused() {
    for name in ["../evil", "a/../../evil", "a/..", "..", "./../beside/file", "a/b/../../../beside/file"] {
        for kind in [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Char] {
            escapes(|_| Archive::new().entry(name, kind, 0o644, "x", b"").done());
        }
    }
}

#[test]
fn absolute_names_are_refused() {
    escapes(|staging| Archive::new().file(&format!("{}/evil", staging.beside()), b"x").done());
    escapes(|_| Archive::new().file("//etc/passwd", b"x").done());
    escapes(|staging| {
        Archive::new().file(".wh.x", b"").file(&format!("{}/.wh.file", staging.beside()), b"").done()
    });
}

#[test]
fn files_behind_links_that_lead_out_are_refused() {
    escapes(|staging| Archive::new().symlink("l", &staging.beside()).file("l/evil", b"x").done());
    escapes(|staging| Archive::new().symlink("l", &staging.beside()).folder("l/evil").done());
    escapes(|staging| Archive::new().symlink("l", &staging.beside()).symlink("l/inner/evil", "x").done());
    escapes(|_| Archive::new().symlink("l", "../beside").file("l/evil", b"x").done());
    escapes(|_| Archive::new().folder("d").symlink("d/l", "../../beside").file("d/l/evil", b"x").done());
    escapes(|_| Archive::new().symlink("a", "..").symlink("b", "a/beside").file("b/evil", b"x").done());
    escapes(|staging| Archive::new().symlink("l", &staging.beside()).file("l/.wh..wh..opq", b"").done());
}

#[test]
fn replaced_links_are_not_followed() {
    let staging = StagingFolder::new();
    let target = format!("{}/file", staging.beside());
    let links = Archive::new().symlink("l", &target).symlink("d", &staging.beside()).done();
    let files = Archive::new().file("l", b"new").folder("d").file("d/file", b"new").done();
    staging.unpack(&[&links, &files], None).unwrap();
    staging.assert_untouched();
    assert_eq!(fs::read_to_string(staging.root().join("l")).unwrap(), "new");
    assert_eq!(fs::read_to_string(staging.root().join("d/file")).unwrap(), "new");
}

#[test]
fn whiteouts_behind_links_remove_nothing_outside() {
    let staging = StagingFolder::new();
    let links = Archive::new().symlink("l", &staging.beside()).done();
    let whiteouts = Archive::new().file("l/.wh.file", b"").file("l/.wh.inner", b"").done();
    staging.unpack(&[&links, &whiteouts], None).unwrap();
    staging.assert_untouched();
}

#[test]
fn hard_links_to_outside_are_refused() {
    escapes(|staging| Archive::new().hard_link("l", &format!("{}/file", staging.beside())).done());
    escapes(|_| Archive::new().hard_link("l", "../beside/file").done());
    escapes(|_| Archive::new().symlink("up", "..").hard_link("l", "up/beside/file").done());
    let error =
        refused(|staging| Archive::new().symlink("d", &staging.beside()).hard_link("l", "d/file").done());
    assert!(matches!(error, UnpackError::Entry { .. }), "{error}");
    let error = refused(|_| Archive::new().folder("d").hard_link("l", "d").done());
    assert!(error.to_string().contains("not a file"), "{error}");
    // A hard link to a symbolic link, and a file written to that name, is the name's own.
    let staging = StagingFolder::new();
    let target = format!("{}/file", staging.beside());
    let first = Archive::new().symlink("s", &target).hard_link("l", "s").done();
    staging.unpack(&[&first, &Archive::new().file("l", b"new").done()], None).unwrap();
    staging.assert_untouched();
}

#[test]
fn whiteouts_of_the_parent_folder_are_refused() {
    for name in [".wh..", ".wh...", ".wh.", "a/.wh..", "a/.wh..."] {
        let error = refused(|_| Archive::new().folder("a").file(name, b"").done());
        assert!(matches!(error, UnpackError::Entry { .. }), "{name}: {error}");
    }
}

#[test]
fn duplicate_entries_are_refused() {
    let twice = |archive: Archive| {
        let error = refused(|_| archive.done());
        assert!(error.to_string().contains("twice"), "{error}");
    };
    twice(Archive::new().file("a", b"1").file("a", b"2"));
    twice(Archive::new().file("d/a", b"1").file("./d//a", b"2"));
    twice(Archive::new().symlink("a", "b").file("a", b"2"));
    twice(Archive::new().folder("d").symlink("l", "d").file("d/a", b"1").file("l/a", b"2"));
    twice(Archive::new().folder("d").file("d", b""));
    // A folder may come twice.
    let staging = StagingFolder::new();
    staging.unpack(&[&Archive::new().folder("d").file("d/a", b"").folder("d/").done()], None).unwrap();
}

#[test]
fn ten_gigabytes_of_zeros_in_ten_kilobytes_are_refused() {
    const SIZE: u64 = 10 << 30;
    // As a file of which the archive has the beginning, as one with holes only, and as zeros behind the archive.
    let started = Instant::now();
    let huge = |_: &StagingFolder| {
        Archive::new().raw("zeros", EntryType::Regular, 0o644, "", &[0; 4096], SIZE).done()
    };
    let sparse = |_: &StagingFolder| {
        let size = SIZE.to_string();
        Archive::new()
            .pax(&[("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.numblocks", b"0")])
            .file("zeros", b"")
            .done()
    };
    let twice_compressed = |_: &StagingFolder| {
        let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        let zeros = vec![0; 1 << 20];
        for _ in 0..200 {
            zstd.write_all(&zeros).unwrap();
        }
        let bomb = zstd.finish().unwrap();
        assert!(bomb.len() < 30_000, "{}", bomb.len());
        [zstd::encode_all(Archive::new().file("a", b"").done().as_slice(), 1).unwrap(), bomb].concat()
    };
    for error in [refused(huge), refused(sparse), refused(twice_compressed)] {
        assert!(matches!(error, UnpackError::TooBig { what: "bytes", .. }), "{error}");
    }
    assert!(started.elapsed() < Duration::from_secs(20));
    let limits = Limits::of_compressed(10_000);
    assert!(limits.bytes < SIZE / 10, "{limits:?}");
}

#[test]
fn ten_million_entries_are_refused() {
    struct Endless {
        block: Vec<u8>,
        at: usize,
        left: u64,
    }
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.at == self.block.len() {
                if self.left == 0 {
                    return Ok(0);
                }
                self.left -= 1;
                self.block = Archive::new().symlink(&format!("{}", self.left), "x").0;
                self.at = 0;
            }
            let count = buffer.len().min(self.block.len() - self.at);
            buffer[..count].copy_from_slice(&self.block[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }
    let staging = StagingFolder::new();
    let mut unpacker = Unpacker::new(&staging.root(), Limits { entries: 1000, ..LIMITS }).unwrap();
    let archive = Endless { block: Vec::new(), at: 0, left: 10_000_000 };
    let error = unpacker.apply(archive, None, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, UnpackError::TooBig { what: "files", limit: 1000 }), "{error}");
    assert_eq!(fs::read_dir(staging.root()).unwrap().count(), 1000);
    staging.assert_untouched();
}

#[test]
fn content_that_does_not_match_its_digest_is_refused() {
    let staging = StagingFolder::new();
    let layer = Archive::new().file("a", b"1").done();
    let error = staging.unpack(&[&layer], Some(&Digest::of(b"other"))).unwrap_err();
    assert!(matches!(error, UnpackError::WrongContent { .. }), "{error}");
    // Bytes after the end of the archive count too.
    let more = [layer.clone(), vec![1; 512]].concat();
    assert!(staging.unpack(&[&more], Some(&Digest::of(&layer))).is_err());
    staging.assert_untouched();
}

#[test]
fn archives_that_end_too_early_are_refused() {
    let whole = Archive::new().file("a", &[7; 5000]).file("b", b"x").done();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&whole).unwrap();
    let gzip = encoder.finish().unwrap();
    for cut in [1, 100, 512, 600, 5632, 6000, whole.len() - 1100] {
        refused(|_| whole[..cut].to_vec());
    }
    for cut in [3, 12, gzip.len() / 2, gzip.len() - 1] {
        refused(|_| gzip[..cut].to_vec());
    }
    let staging = StagingFolder::new();
    staging.unpack(&[&gzip], None).unwrap();
}

#[test]
fn false_headers_are_refused() {
    for archive in [
        // Noise, a wrong checksum, invalid numbers, maps that contradict themselves.
        vec![b'x'; 2048],
        {
            let mut bytes = Archive::new().file("a", b"").done();
            bytes[0] = b'b';
            bytes
        },
        Archive::new().pax(&[("size", b"-1")]).file("a", b"").done(),
        Archive::new().pax(&[("mtime", b"soon")]).file("a", b"").done(),
        Archive::new().entry("pax", EntryType::XHeader, 0, "", b"999 path=x\n").file("a", b"").done(),
        Archive::new().entry("pax", EntryType::XHeader, 0, "", b"0 \n").file("a", b"").done(),
        Archive::new().entry("pax", EntryType::XHeader, 0, "", b"junk\n").file("a", b"").done(),
        Archive::new().entry("pax", EntryType::XHeader, 0, "", b"x path=y\n").file("a", b"").done(),
        Archive::new().pax(&[("path", b"a\0b")]).file("a", b"").done(),
        // Metadata without its entry, or of another format.
        Archive::new()
            .pax(&[("path", b"b")])
            .entry("pax", EntryType::XGlobalHeader, 0, "", b"")
            .file("a", b"")
            .done(),
        Archive::new().pax(&[("path", b"b")]).block(&[0; 512]).file("a", b"").done(),
        Archive::new()
            .entry("long", EntryType::GNULongName, 0, "", b"b\0")
            .with_magic(b"other")
            .file("a", b"")
            .done(),
        Archive::new().pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.size", b"0")]).folder("a").done(),
        Archive::new()
            .pax(&[("GNU.sparse.map", b"0,1,0,1"), ("GNU.sparse.size", b"9")])
            .file("a", b"xy")
            .done(),
        Archive::new()
            .pax(&[("GNU.sparse.map", b"8,8"), ("GNU.sparse.size", b"9")])
            .file("a", b"01234567")
            .done(),
        Archive::new()
            .pax(&[("GNU.sparse.map", b"0,18446744073709551615"), ("GNU.sparse.size", b"9")])
            .file("a", b"")
            .done(),
        Archive::new()
            .pax(&[("GNU.sparse.map", b"0,1"), ("GNU.sparse.size", b"9")])
            .file("a", b"12345")
            .done(),
        Archive::new()
            .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"9")])
            .file("a", b"999999999999999999999\n")
            .done(),
        Archive::new().pax(&[("GNU.sparse.major", b"1")]).file("a", b"0\n").done(),
        Archive::new().raw("long", EntryType::GNULongName, 0, "", b"x", 1 << 40).done(),
        Archive::new().file("", b"x").done(),
        Archive::new().file(".", b"x").done(),
        Archive::new().entry("l", EntryType::Symlink, 0, "", b"").done(),
        Archive::new().hard_link("l", "l").done(),
        Archive::new().file("f", b"").file("f/below", b"").done(),
        Archive::new().symlink("a", "b").symlink("b", "a").file("a/x", b"").done(),
    ] {
        refused(|_| archive);
    }
}

#[test]
fn too_much_metadata_is_refused_even_when_its_size_overflows() {
    let mut long = tar::Header::new_gnu();
    long.set_entry_type(EntryType::GNULongName);
    long.set_size(u64::MAX - 1023);
    long.set_cksum();
    let error = refused(|_| Archive::new().pax(&[("comment", &[b'x'; 2000])]).block(long.as_bytes()).done());
    assert!(matches!(error, UnpackError::TooBig { .. }), "{error}");
    let name = vec![b'n'; 400 << 10];
    let sum = |_: &StagingFolder| {
        let archive = Archive::new().pax(&[("comment", &name)]);
        let archive = archive.entry("long", EntryType::GNULongName, 0, "", &name);
        archive.entry("long", EntryType::GNULongLink, 0, "", &name).file("a", b"").done()
    };
    assert!(matches!(refused(sum), UnpackError::TooBig { .. }));
}

#[test]
fn sparse_maps_with_too_many_parts_are_refused() {
    // The lines of such a map cost nothing but bytes: as many as are promised, or one without an end.
    let records: [(&str, &[u8]); 3] =
        [("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"9")];
    for map in [b"65537\n".to_vec(), [b"65536\n".to_vec(), b"0\n0\n".repeat(2 << 20)].concat()] {
        let error = refused(|_| Archive::new().pax(&records).file("a", &map).done());
        assert!(matches!(error, UnpackError::TooBig { .. } | UnpackError::Malformed(_)), "{error}");
    }
    let endless = |_: &StagingFolder| Archive::new().pax(&records).file("a", &vec![b'1'; 8 << 20]).done();
    assert!(matches!(refused(endless), UnpackError::TooBig { .. }));
}

#[test]
fn folders_too_deep_to_remove_are_refused() {
    let deep = |depth: usize| vec!["d"; depth].join("/");
    let error = refused(|_| Archive::new().folder(&deep(2000)).done());
    assert!(error.to_string().contains("too deep"), "{error}");
    let error = refused(|_| {
        let archive = Archive::new().folder(&deep(100)).symlink("l", &deep(100));
        archive.folder("l/d").file(&format!("l/d/{}/f", deep(60)), b"").done()
    });
    assert!(matches!(error, UnpackError::Escape { .. } | UnpackError::Entry { .. }), "{error}");
    let staging = StagingFolder::new();
    let limit = Path::new(&deep(120)).join("f");
    staging.unpack(&[&Archive::new().file(limit.to_str().unwrap(), b"").done()], None).unwrap();
}
