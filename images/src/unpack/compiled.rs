//! Compiled Python modules, added beside their sources to a root that may be in use.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustix::fs::FileType;

use super::UnpackError;
use super::decode::with_decoded;
use super::error::refused;
use super::layer::copy;
use super::tar::{Kind, TarStream};
use super::tree::{Missing, Tree};

/// Several times what a whole standard library takes.
const LIMIT: u64 = 256 << 20;
const FILES: usize = 20_000;
/// The name of a module that is being written: an interruption leaves one such file at most.
const UNFINISHED: &[u8] = b".unfinished.tmp";
/// The parts of a path in an image: folders further up are part of the fingerprint of a root.
const IN_IMAGE: usize = 5;
/// The same below a folder of packages, which has no fingerprint.
const IN_PACKAGES: usize = 3;

/// Adds the compiled modules of an archive to an unpacked image; returns how many.
pub(crate) fn add_compiled(
    root: &Path,
    archive: impl Read + Send,
    cancelled: &AtomicBool,
) -> Result<usize, UnpackError> {
    add(root, archive, IN_IMAGE, cancelled)
}

/// Adds the compiled modules of an archive to a folder that holds a folder of packages; returns how many. Blocks.
///
/// # Errors
/// The archive contains something else, or is too big.
pub fn add_compiled_packages(
    root: &Path,
    archive: impl Read + Send,
    cancelled: &AtomicBool,
) -> Result<usize, UnpackError> {
    add(root, archive, IN_PACKAGES, cancelled)
}

/// Adds modules whose paths have at least so many parts.
///
/// The archive is untrusted: it may only contain `DIR/__pycache__/NAME.*.pyc` beside an existing `DIR/NAME.py`. Each file
/// appears whole, because it may be imported meanwhile.
fn add(
    root: &Path,
    archive: impl Read + Send,
    least_depth: usize,
    cancelled: &AtomicBool,
) -> Result<usize, UnpackError> {
    let mut tree = Tree::open(root).map_err(|source| UnpackError::Write { entry: "/".into(), source })?;
    with_decoded(archive, None, LIMIT, cancelled, |pipe| {
        let mut stream = TarStream::new(&mut *pipe);
        let mut added = 0;
        while let Some(entry) = stream.next()? {
            let path = entry.path.as_slice();
            let refused = |why| refused(path, why);
            if entry.kind != Kind::File || entry.sparse.is_some() {
                return Err(refused("it is not a file"));
            }
            let source =
                source_of(path, least_depth).ok_or_else(|| refused("it is not a compiled module"))?;
            let place = tree.locate(&source, Missing::Report)?;
            let kind = place.map(|place| tree.kind(&place.name, path)).transpose()?.flatten();
            if !matches!(kind, Some(FileType::RegularFile | FileType::Symlink)) {
                return Err(refused("its source does not exist"));
            }
            let place = tree.locate(path, Missing::Create)?.ok_or_else(|| refused("it has no name"))?;
            // A module of the image itself stays.
            if tree.kind(&place.name, path)?.is_some() {
                continue;
            }
            let mut file = tree.create_file(UNFINISHED, 0o644, path)?;
            copy(&mut stream, &mut file, entry.stored, &entry)?;
            tree.rename(UNFINISHED, &place.name, path)?;
            added += 1;
            if added > FILES {
                return Err(UnpackError::TooBig { what: "files", limit: FILES as u64 });
            }
        }
        if !stream.complete {
            return Err(UnpackError::Malformed("it has no end mark".into()));
        }
        stream.drain()?;
        Ok(added)
    })
}

/// Returns `a/b/c/x.py` for `a/b/c/__pycache__/x.cpython-314.pyc`; None for anything else.
fn source_of(path: &[u8], least_depth: usize) -> Option<Vec<u8>> {
    let parts: Vec<_> = path.split(|byte| *byte == b'/').collect();
    let [folders @ .., cache, name] = parts.as_slice() else { return None };
    let is_plain = |part: &&[u8]| !matches!(*part, b"" | b"." | b"..");
    if *cache != b"__pycache__" || !name.ends_with(b".pyc") || !parts.iter().all(is_plain) {
        return None;
    }
    if parts.len() < least_depth {
        return None;
    }
    let stem = name.split(|byte| *byte == b'.').next().filter(|stem| !stem.is_empty())?;
    Some([&folders.join(&b'/')[..], b"/", stem, b".py"].concat())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tar::EntryType;

    use super::super::archive::Archive;
    use super::super::staging::StagingFolder;
    use super::*;

    fn staging() -> StagingFolder {
        let staging = StagingFolder::new();
        fs::create_dir_all(staging.root().join("usr/lib/python3")).unwrap();
        fs::write(staging.root().join("usr/lib/python3/x.py"), "1").unwrap();
        staging
    }

    fn add_to(staging: &StagingFolder, archive: &[u8]) -> Result<usize, UnpackError> {
        add_compiled(&staging.root(), archive, &AtomicBool::new(false))
    }

    #[test]
    fn compiled_modules_are_added_beside_their_sources() {
        let staging = staging();
        let name = "usr/lib/python3/__pycache__/x.cpython-314.pyc";
        assert_eq!(add_to(&staging, &Archive::new().file(name, b"code").done()).unwrap(), 1);
        assert_eq!(fs::read(staging.root().join(name)).unwrap(), b"code");
        // An existing one stays.
        assert_eq!(add_to(&staging, &Archive::new().file(name, b"other").done()).unwrap(), 0);
        assert_eq!(fs::read(staging.root().join(name)).unwrap(), b"code");
        assert_eq!(add_to(&staging, &Archive::new().done()).unwrap(), 0);
        let names = fs::read_dir(staging.root().join("usr/lib/python3/__pycache__")).unwrap();
        assert_eq!(names.count(), 1);
        staging.assert_untouched();
    }

    #[test]
    fn anything_but_a_compiled_module_is_refused() {
        let pyc = "usr/lib/python3/__pycache__/x.cpython-314.pyc";
        for archive in [
            Archive::new().file("usr/lib/python3/x.py", b"evil"),
            Archive::new().file("usr/lib/python3/__pycache__/none.cpython-314.pyc", b""),
            Archive::new().file("usr/lib/python3/__pycache__/.pyc", b""),
            Archive::new().file("usr/lib/python3/__pycache__/x.so", b""),
            Archive::new().file("usr/lib/other/__pycache__/x.cpython-314.pyc", b""),
            Archive::new().file(&format!("/{pyc}"), b""),
            Archive::new().file("usr/lib/../lib/python3/__pycache__/x.cpython-314.pyc", b""),
            Archive::new().file("../beside/a/b/__pycache__/x.cpython-314.pyc", b""),
            Archive::new().file("usr/__pycache__/x.cpython-314.pyc", b""),
            Archive::new().symlink(pyc, "x"),
            Archive::new().hard_link(pyc, "usr/lib/python3/x.py"),
            Archive::new().folder("usr/lib/python3/__pycache__"),
            Archive::new().entry(pyc, EntryType::Fifo, 0o644, "", b""),
        ] {
            let staging = staging();
            assert!(add_to(&staging, &archive.done()).is_err());
            let names = fs::read_dir(staging.root().join("usr/lib/python3")).unwrap();
            assert_eq!(names.count(), 1);
            assert_eq!(fs::read_to_string(staging.root().join("usr/lib/python3/x.py")).unwrap(), "1");
            staging.assert_untouched();
        }
        // An incomplete archive is refused.
        assert!(add_to(&staging(), &Archive::new().file(pyc, &[1; 2000]).done()[..1024]).is_err());
    }

    #[test]
    fn folders_that_lead_out_are_not_followed() {
        let staging = StagingFolder::new();
        fs::write(format!("{}/x.py", staging.beside()), "1").unwrap();
        let lib = staging.root().join("usr/lib");
        fs::create_dir_all(&lib).unwrap();
        std::os::unix::fs::symlink(staging.beside(), lib.join("python3")).unwrap();
        let outside = staging.outside();
        let name = "usr/lib/python3/__pycache__/x.cpython-314.pyc";
        assert!(add_to(&staging, &Archive::new().file(name, b"code").done()).is_err());
        assert_eq!(staging.outside(), outside);
    }
}
