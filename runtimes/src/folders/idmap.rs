//! Mounts of a folder on which its owner's files belong to somebody else:
//! <https://docs.kernel.org/filesystems/idmappings.html>.
//!
//! Only root may make them, on file systems that support them. They are attached in a mount namespace that one runtime is started
//! in, so that they end with it and nobody else sees them.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A mount that is not attached anywhere yet.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct Mapped(OwnedFd);

/// Other systems have no such mounts.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) enum Mapped {}

#[cfg(not(target_os = "linux"))]
pub(super) async fn map(_folder: &Path, _reader: (u32, u32)) -> io::Result<Mapped> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn with_private<T: Send>(
    _mounts: &[(Mapped, PathBuf)],
    _start: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
pub(super) use linux::{map, with_private};

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_int, c_long, c_uint};
    use std::os::fd::{AsFd, AsRawFd};
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, open, openat2};
    use rustix::mount::{
        MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
    };
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{Mapped, OwnedFd, Path, PathBuf, io};
    use crate::exec::{self, CommandLine};

    /// The helper takes 2 ms.
    const HELPER_LIMIT: Duration = Duration::from_secs(10);

    /// Returns a read-only mount of a folder on which its owner's files belong to `reader`.
    pub(in super::super) async fn map(folder: &Path, reader: (u32, u32)) -> io::Result<Mapped> {
        // Its owner may put a link in its place at any moment.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let source = openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        let stat = fstat(&source)?;
        let ids = id_namespace((stat.st_uid, stat.st_gid), reader).await?;
        // Not recursive: the mounts below it may belong to file systems that cannot be mapped.
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(&source, "", flags)?;
        set_attributes(tree.as_fd(), &ids)?;
        Ok(Mapped(tree))
    }

    /// Returns a user namespace that maps the owner's ids, and nothing else, to those of the reader.
    async fn id_namespace(owner: (u32, u32), reader: (u32, u32)) -> io::Result<OwnedFd> {
        let unshare = exec::find_program(Path::new("unshare")).ok_or(io::ErrorKind::NotFound)?;
        let command = CommandLine::new(unshare).args(["--user", "--", "cat"]);
        let mut helper = exec::spawn_piped(&command).map_err(io::Error::other)?;
        let group = exec::group_of(&helper);
        let made = async {
            // It answers from inside of the namespace.
            let (input, output) = (helper.stdin.as_mut(), helper.stdout.as_mut());
            let (Some(input), Some(output)) = (input, output) else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            input.write_all(b".").await?;
            output.read_exact(&mut [0]).await?;
            let pid = helper.id().ok_or(io::ErrorKind::NotFound)?;
            let file = |name: &str| format!("/proc/{pid}/{name}");
            std::fs::write(file("uid_map"), format!("{} {} 1", owner.0, reader.0))?;
            std::fs::write(file("gid_map"), format!("{} {} 1", owner.1, reader.1))?;
            Ok(open(file("ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        };
        let made = tokio::time::timeout(HELPER_LIMIT, made).await;
        exec::terminate(&mut helper, group, Duration::ZERO).await;
        made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// `struct mount_attr`: <https://man7.org/linux/man-pages/man2/mount_setattr.2.html>.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        namespace: u64,
    }

    /// The number of the system call on every architecture with the common table.
    const SYS_MOUNT_SETATTR: c_long = 442;
    const AT_EMPTY_PATH: c_uint = 0x1000;
    const READ_ONLY_NOSUID_NODEV: u64 = 0x1 | 0x2 | 0x4;
    const IDMAP: u64 = 0x0010_0000;

    fn set_attributes(tree: std::os::fd::BorrowedFd<'_>, ids: &OwnedFd) -> io::Result<()> {
        let namespace = u64::try_from(ids.as_raw_fd()).map_err(io::Error::other)?;
        let attributes =
            Attributes { set: READ_ONLY_NOSUID_NODEV | IDMAP, clear: 0, propagation: 0, namespace };
        #[expect(unsafe_code, reason = "no crate that is used here has this system call")]
        // SAFETY: the path is a string that ends with zero, and the structure has the size that is passed; both outlive the call.
        let answer = unsafe {
            unsafe extern "C" {
                fn syscall(number: c_long, ...) -> c_long;
            }
            let tree: c_int = tree.as_raw_fd();
            syscall(
                SYS_MOUNT_SETATTR,
                tree,
                c"".as_ptr(),
                AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<Attributes>(),
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Runs `start` on a thread with a mount namespace of its own, in which the mounts are attached at these places. A process that
    /// it starts stays in that namespace.
    pub(in super::super) fn with_private<T: Send>(
        mounts: &[(Mapped, PathBuf)],
        start: impl FnOnce() -> T + Send,
    ) -> io::Result<T> {
        let runtime = tokio::runtime::Handle::current();
        let work = || {
            #[expect(unsafe_code, reason = "it could unshare descriptors; here it does not")]
            // SAFETY: the table of descriptors stays shared, because `FILES` is not among the flags.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
            // What is mounted or unmounted on the host later is seen, and nothing goes the other way.
            mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
            for (Mapped(tree), place) in mounts {
                move_mount(tree, "", CWD, place.as_path(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
            }
            let _context = runtime.enter();
            Ok(start())
        };
        thread::scope(|scope| match scope.spawn(work).join() {
            Ok(done) => done,
            Err(_) => Err(io::Error::other("the thread that starts the runtime panicked")),
        })
    }
}
