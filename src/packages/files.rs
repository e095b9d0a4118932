//! Trees of files: unpacked wheels are checked once, and then only linked.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::InstallError;

/// Bytes of one set of packages.
pub(super) const MOST_BYTES: u64 = 4 << 30;

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// Checks unpacked wheels, and makes them readable for the users of sandboxes. Scripts, which name the Python of the host, are
/// removed.
pub(super) fn seal(root: &Path) -> Result<Size, InstallError> {
    for name in ["bin", "Scripts"] {
        ignore_missing(fs::remove_dir_all(root.join(name))).map_err(InstallError::io("clean", root))?;
    }
    ignore_missing(fs::remove_file(root.join(".lock"))).map_err(InstallError::io("clean", root))?;
    let mut size = Size::default();
    seal_folder(root, &mut size)?;
    Ok(size)
}

fn seal_folder(folder: &Path, size: &mut Size) -> Result<(), InstallError> {
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(InstallError::io("change", path))
    };
    set_mode(folder, 0o755)?;
    for entry in fs::read_dir(folder).map_err(InstallError::io("read", folder))? {
        let path = entry.map_err(InstallError::io("read", folder))?.path();
        let meta = fs::symlink_metadata(&path).map_err(InstallError::io("read", &path))?;
        if meta.is_dir() {
            seal_folder(&path, size)?;
            continue;
        }
        // A link could lead anywhere on the host when it is followed there.
        if !meta.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return Err(InstallError::Entry(name.escape_debug().to_string()));
        }
        size.bytes += meta.len();
        size.files += 1;
        if size.bytes > MOST_BYTES {
            return Err(InstallError::TooLarge { size: size.bytes >> 20, most: MOST_BYTES >> 20 });
        }
        set_mode(&path, if meta.mode() & 0o111 == 0 { 0o644 } else { 0o755 })?;
    }
    Ok(())
}

/// Links the files of one tree into another one, which has none of them; copies where links are impossible.
pub(super) fn link_tree(from: &Path, to: &Path) -> Result<(), InstallError> {
    make_folder(to)?;
    for entry in fs::read_dir(from).map_err(InstallError::io("read", from))? {
        let entry = entry.map_err(InstallError::io("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(InstallError::io("read", &source))?;
        if kind.is_dir() {
            link_tree(&source, &target)?;
        } else if let Err(error) = fs::hard_link(&source, &target) {
            match error.kind() {
                // Both trees have it: packages may share a file of a namespace.
                io::ErrorKind::AlreadyExists => {}
                _ => drop(fs::copy(&source, &target).map_err(InstallError::io("write", &target))?),
            }
        }
    }
    Ok(())
}

/// Moves a tree into another one, entry by entry, so that each package appears at once. What is there already stays.
pub(super) fn move_tree(from: &Path, to: &Path) -> Result<(), InstallError> {
    for entry in fs::read_dir(from).map_err(InstallError::io("read", from))? {
        let entry = entry.map_err(InstallError::io("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if !target.exists() {
            fs::rename(&source, &target).map_err(InstallError::io("write", &target))?;
        } else if source.is_dir() && target.is_dir() {
            move_tree(&source, &target)?;
        }
    }
    Ok(())
}

/// Makes a folder that everybody can read, whatever the umask is.
pub(super) fn make_folder(path: &Path) -> Result<(), InstallError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, Permissions::from_mode(0o755)),
    }
    .map_err(InstallError::io("make", path))
}

/// Returns whether nothing can be executed from the file system of a folder. A sandbox sees it with the same flags.
pub(super) fn is_noexec(folder: &Path) -> bool {
    #[cfg(target_os = "linux")]
    let found = rustix::fs::statvfs(folder)
        .is_ok_and(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
    // Engines there are in a machine, which gets copies.
    #[cfg(not(target_os = "linux"))]
    let found = folder.as_os_str().is_empty();
    found
}

/// Returns whether a tree has modules that are not Python.
pub(super) fn has_native(root: &Path) -> bool {
    fs::read_dir(root).into_iter().flatten().flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => has_native(&entry.path()),
        _ => entry.path().extension().is_some_and(|extension| extension == "so"),
    })
}

pub(super) fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_sealed_tree_is_readable_and_has_no_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("files");
        write(&root.join("a/b.py"), "12345");
        write(&root.join("bin/tool"), "#!/usr/bin/python3");
        fs::set_permissions(root.join("a/b.py"), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(seal(&root).unwrap(), Size { bytes: 5, files: 1 });
        assert_eq!(fs::metadata(root.join("a/b.py")).unwrap().mode() & 0o777, 0o644);
        assert!(!root.join("bin").exists());
    }

    #[test]
    fn native_modules_are_found() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("a/b.py"), "");
        assert!(!has_native(folder.path()));
        write(&folder.path().join("a/c/d.cpython-314-x86_64-linux-gnu.so"), "");
        assert!(has_native(folder.path()));
    }

    #[test]
    fn a_link_in_a_wheel_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("/etc/passwd", folder.path().join("x.py")).unwrap();
        assert!(matches!(seal(folder.path()), Err(InstallError::Entry(name)) if name == "x.py"));
    }

    #[test]
    fn trees_are_merged_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two, staging, live] =
            ["one", "two", "staging", "live"].map(|name| folder.path().join(name));
        write(&one.join("space/a.py"), "a");
        write(&two.join("space/b.py"), "b");
        write(&two.join("space/a.py"), "another");
        make_folder(&live).unwrap();
        link_tree(&one, &staging).unwrap();
        move_tree(&staging, &live).unwrap();
        let staging = folder.path().join("staging2");
        link_tree(&two, &staging).unwrap();
        move_tree(&staging, &live).unwrap();
        let read = |name: &str| fs::read_to_string(live.join("space").join(name)).unwrap();
        assert_eq!((read("a.py").as_str(), read("b.py").as_str()), ("a", "b"));
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&live.join("space/b.py")), inode(&two.join("space/b.py")));
    }
}
