//! Unpacked layers of ordinary images.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tar::EntryType;

use super::archive::Archive;
use super::layer::{Limits, Unpacked, Unpacker};
use super::{UnpackError, tree};

fn unpack_into(folder: &Path, layers: &[Vec<u8>]) -> Result<Unpacked, UnpackError> {
    let mut unpacker = Unpacker::new(folder, Limits { bytes: 100 << 20, entries: 1000 })?;
    for layer in layers {
        unpacker.apply(layer.as_slice(), None, &AtomicBool::new(false))?;
    }
    unpacker.finish()
}

fn unpacked(layers: &[Archive]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let layers: Vec<_> = layers.iter().map(|layer| layer.clone().done()).collect();
    unpack_into(folder.path(), &layers).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn files_keep_content_time_and_permissions_to_read() {
    let root = unpacked(&[Archive::new()
        .folder("./")
        .folder("./bin/")
        .entry("./bin/su", EntryType::Regular, 0o4755, "", b"su")
        .entry("./bin/shared", EntryType::Regular, 0o2777, "", b"")
        .entry("tmp", EntryType::Directory, 0o1777, "", b"")
        .entry("closed", EntryType::Directory, 0o000, "", b"")
        .file("closed/inside", b"x")
        .entry("secret", EntryType::Regular, 0o600, "", b"")
        .entry("null", EntryType::Char, 0o666, "", b"")
        .entry("pipe", EntryType::Fifo, 0o666, "", b"")]);
    let mode =
        |name: &str| fs::symlink_metadata(root.path().join(name)).unwrap().permissions().mode() & 0o7777;
    let modes = ["bin/su", "bin/shared", "tmp", "closed", "secret"].map(mode);
    assert_eq!(modes, [0o755, 0o755, 0o755, 0o700, 0o600]);
    assert_eq!(names(root.path()), ["bin", "closed", "secret", "tmp"]);
    for name in ["bin", "bin/su", "tmp", "."] {
        assert_eq!(fs::metadata(root.path().join(name)).unwrap().mtime(), 1_000_000_000, "{name}");
    }
}

#[test]
fn files_of_the_sandbox_user_stay_readable_to_it() {
    let mut header = tar::Header::new_gnu();
    header.set_path("app.py").unwrap();
    header.set_mode(0o500);
    header.set_uid(65534);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_cksum();
    let root = unpacked(&[Archive::new().block(header.as_bytes())]);
    assert_eq!(fs::metadata(root.path().join("app.py")).unwrap().mode() & 0o777, 0o505);
}

#[test]
fn whiteouts_remove_from_lower_layers_only() {
    let below = Archive::new()
        .file("gone", b"1")
        .file("kept", b"1")
        .folder("tree")
        .file("tree/deep/file", b"1")
        .file("both/old", b"1")
        .file("both/sub/old", b"1");
    let above = Archive::new()
        .file(".wh.gone", b"")
        .file("tree.txt", b"2")
        .file(".wh.tree", b"")
        .file(".wh.never", b"")
        .file("never/.wh.there", b"")
        .file("both/sub/new", b"2")
        .file("both/.wh..wh..opq", b"")
        .file("both/later", b"2")
        .file(".wh..wh.plnk", b"");
    let root = unpacked(&[below, above]);
    assert_eq!(names(root.path()), ["both", "kept", "tree.txt"]);
    assert_eq!(names(&root.path().join("both")), ["later", "sub"]);
    assert_eq!(names(&root.path().join("both/sub")), ["new"]);
}

#[test]
fn a_whiteout_and_its_replacement_may_come_in_any_order() {
    let below =
        Archive::new().folder("a").file("a/old", b"1").folder("b").file("b/old", b"1").symlink("c", "a");
    let above = Archive::new()
        .file("a", b"2")
        .file(".wh.a", b"")
        .file(".wh.b", b"")
        .symlink("b", "kept")
        .folder("c")
        .file("c/new", b"2");
    let root = unpacked(&[below, above]);
    assert_eq!(text(root.path().join("a")), "2");
    assert_eq!(fs::read_link(root.path().join("b")).unwrap(), Path::new("kept"));
    assert_eq!(names(&root.path().join("c")), ["new"]);
}

#[test]
fn hard_links_share_a_file_until_one_name_is_replaced() {
    let below = Archive::new()
        .folder("usr")
        .symlink("lib", "usr")
        .file("usr/perl", b"perl")
        .hard_link("usr/perl5", "usr/perl")
        .symlink("usr/link", "nowhere")
        .hard_link("usr/link2", "usr/link")
        .hard_link("also", "./lib/perl");
    let above = Archive::new().file("usr/perl5", b"new");
    let root = unpacked(&[below, above]);
    assert_eq!(
        (text(root.path().join("usr/perl")), text(root.path().join("usr/perl5"))),
        ("perl".into(), "new".into())
    );
    assert_eq!(fs::metadata(root.path().join("also")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(root.path().join("usr/link2")).unwrap(), Path::new("nowhere"));
}

#[test]
fn links_of_the_image_are_followed_inside_it() {
    let below = Archive::new()
        .folder("usr/lib")
        .symlink("lib", "usr/lib")
        .folder("run")
        .symlink("var/run", "/run")
        .symlink("var/again", "../var/./run");
    let above = Archive::new().file("lib/libc.so", b"c").file("var/run/pid", b"1").file("var/again/x", b"2");
    let root = unpacked(&[below, above]);
    assert_eq!(names(&root.path().join("usr/lib")), ["libc.so"]);
    assert_eq!(names(&root.path().join("run")), ["pid", "x"]);
    assert!(fs::symlink_metadata(root.path().join("lib")).unwrap().is_symlink());
}

#[test]
fn long_names_of_both_formats_are_complete() {
    let name = format!("{}/{}", "d".repeat(200), "f".repeat(250));
    let gnu = Archive::new()
        .entry("././@LongLink", EntryType::GNULongLink, 0, "", format!("{name}\0").as_bytes())
        .entry("././@LongLink", EntryType::GNULongName, 0, "", format!("{name}2\0\0").as_bytes())
        .entry("cut", EntryType::Symlink, 0o777, "cut", b"");
    let root = unpacked(&[Archive::new().file(&name, b"pax"), gnu]);
    assert_eq!(text(root.path().join(&name)), "pax");
    assert_eq!(fs::read_link(root.path().join(format!("{name}2"))).unwrap(), Path::new(&name));
}

#[test]
fn pax_records_override_the_header() {
    let archive = Archive::new()
        .pax(&[("mtime", b"1234567890.75"), ("size", b"5"), ("path", b"real"), ("comment", b"a=b\nc")])
        .raw("other", EntryType::Regular, 0o644, "", b"hello", 0);
    let root = unpacked(&[archive]);
    assert_eq!(text(root.path().join("real")), "hello");
    assert_eq!(fs::metadata(root.path().join("real")).unwrap().mtime(), 1_234_567_890);
}

#[test]
fn sparse_files_of_every_format_keep_their_holes() {
    const SIZE: u64 = 8 << 20;
    let expect = |root: &Path, name: &str| {
        let content = fs::read(root.join(name)).unwrap();
        let meta = fs::metadata(root.join(name)).unwrap();
        assert_eq!(
            (content.len() as u64, &content[..4], &content[4096..4100]),
            (SIZE, &[0; 4][..], &b"data"[..]),
            "{name}"
        );
        assert!(meta.blocks() * 512 < 1 << 20, "{name} takes {} blocks", meta.blocks());
    };
    let size = SIZE.to_string();
    let mut gnu = tar::Header::new_gnu();
    gnu.set_path("gnu").unwrap();
    gnu.set_entry_type(EntryType::GNUSparse);
    gnu.set_mode(0o644);
    gnu.set_uid(0);
    gnu.set_gid(0);
    gnu.set_mtime(0);
    gnu.set_size(4);
    let fields = gnu.as_gnu_mut().unwrap();
    fields.sparse[0].offset[..12].copy_from_slice(b"00000010000\0");
    fields.sparse[0].numbytes[..12].copy_from_slice(b"00000000004\0");
    fields.realsize[..12].copy_from_slice(format!("{SIZE:011o}\0").as_bytes());
    gnu.set_cksum();
    let archive = Archive::new()
        .block(gnu.as_bytes())
        .block(b"data")
        .pax(&[
            ("GNU.sparse.size", size.as_bytes()),
            ("GNU.sparse.numblocks", b"1"),
            ("GNU.sparse.offset", b"4096"),
            ("GNU.sparse.numbytes", b"4"),
        ])
        .file("zero", b"data")
        .pax(&[
            ("GNU.sparse.size", size.as_bytes()),
            ("GNU.sparse.name", b"one"),
            ("GNU.sparse.map", b"4096,4,8388608,0"),
        ])
        .file("GNUSparseFile.0/one", b"data")
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"ten"),
            ("GNU.sparse.realsize", size.as_bytes()),
        ])
        .file(
            "GNUSparseFile.0/ten",
            &[b"2\n4096\n4\n8388608\n0\n".to_vec(), vec![0; 512 - 19], b"data".to_vec()].concat(),
        )
        .file("after", b"all");
    let root = unpacked(&[archive]);
    for name in ["gnu", "zero", "one", "ten"] {
        expect(root.path(), name);
    }
    assert_eq!(text(root.path().join("after")), "all");
}

#[test]
fn user_attributes_are_kept_and_capabilities_dropped() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let archive = Archive::new()
        .pax(&[
            ("SCHILY.xattr.user.note", b"a\nb"),
            (
                "SCHILY.xattr.security.capability",
                &[1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
        ])
        .file("file", b"");
    unpack_into(folder.path(), &[archive.done()]).unwrap();
    let get = |name: &str| {
        let mut value = [0; 100];
        rustix::fs::lgetxattr(folder.path().join("file"), name, &mut value)
            .map(|count| value[..count].to_vec())
    };
    assert_eq!(get("security.capability"), Err(rustix::io::Errno::NODATA));
    match get("user.note") {
        Ok(value) => assert_eq!(value, b"a\nb"),
        Err(errno) => assert_eq!(errno, rustix::io::Errno::OPNOTSUPP, "the file system has attributes"),
    }
}

#[test]
fn a_folder_replaced_by_a_link_leaves_the_target_of_the_link_alone() {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("inner")).unwrap();
    let before = fs::metadata(outside.path().join("inner")).unwrap().mtime();
    let target = outside.path().to_str().unwrap();
    let below = Archive::new().folder("a").folder("a/inner");
    let root = unpacked(&[below, Archive::new().symlink("a", target)]);
    assert_eq!(fs::read_link(root.path().join("a")).unwrap(), outside.path());
    assert_eq!(fs::metadata(outside.path().join("inner")).unwrap().mtime(), before);
}

#[test]
fn a_tree_reuses_open_folders_and_notices_changes() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = tree::Tree::open(root.path()).unwrap();
    let first = tree.locate(b"a/b/one", tree::Missing::Create).unwrap().unwrap();
    let again = tree.locate(b"./a//b/one", tree::Missing::Report).unwrap().unwrap();
    assert!(first.key == again.key);
    std::os::unix::fs::symlink("a/b", root.path().join("c")).unwrap();
    let linked = tree.locate(b"c/one", tree::Missing::Report).unwrap().unwrap();
    assert!(first.key == linked.key);
    assert_eq!(tree.path_of(b"one"), b"a/b/one");
    assert!(tree.locate(b"x/y", tree::Missing::Report).unwrap().is_none());
}

#[test]
fn blank_numbers_of_a_header_are_zero() {
    for blank in [0, b' '] {
        let mut archive = Archive::new().folder("d").file("d/f", b"content").done();
        for header in archive[..1024].chunks_mut(512) {
            // User, group and time; then the sum of all.
            header[108..124].fill(blank);
            header[136..148].fill(blank);
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let folder = tempfile::tempdir().unwrap();
        unpack_into(folder.path(), &[archive]).unwrap();
        assert_eq!(text(folder.path().join("d/f")), "content");
        assert_eq!(fs::metadata(folder.path().join("d/f")).unwrap().mtime(), 0);
    }
}
