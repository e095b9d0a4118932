//! The sockets of bridges: files in a folder that only their user can enter, named by the bridge. What a killed bridge leaves is
//! removed by whoever finds it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// The folder in the state folder.
const FOLDER: &str = "bridges";
const ENDING: &str = ".sock";
/// Bytes of the path of a socket, with the zero at its end: on Linux 108, on macOS 104.
const LONGEST: usize = 104;

/// The folder of the sockets of one user.
#[derive(Debug, Clone)]
pub(super) struct Sockets(PathBuf);

/// A socket that listens. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A path that fits into the address of a socket, as long as the folder is open.
struct Short {
    path: PathBuf,
    _folder: Option<File>,
}

impl Sockets {
    pub(super) fn at(state_dir: &Path) -> Self {
        Self(state_dir.join(FOLDER))
    }

    fn path(&self, bridge: &str) -> PathBuf {
        self.0.join(format!("{bridge}{ENDING}"))
    }

    fn short(&self, bridge: &str) -> io::Result<Short> {
        let path = self.path(bridge);
        if path.as_os_str().len() < LONGEST {
            return Ok(Short { path, _folder: None });
        }
        let directory = i32::try_from(OFlags::DIRECTORY.bits()).unwrap_or_default();
        let folder = OpenOptions::new().read(true).custom_flags(directory).open(&self.0)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{bridge}{ENDING}", folder.as_raw_fd()));
        Ok(Short { path, _folder: Some(folder) })
    }

    /// Listens in the name of a bridge.
    pub(super) fn listen(&self, bridge: &str) -> io::Result<Socket> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        if !self.is_private() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "others can enter the folder of the sockets",
            ));
        }
        self.remove_dead();
        let short = self.short(bridge)?;
        // Under another name until it listens: whoever finds nobody behind a socket removes it.
        let unready = short.path.with_extension("new");
        let listener = UnixListener::bind(&unready)?;
        fs::set_permissions(&unready, Permissions::from_mode(0o600))?;
        fs::rename(&unready, &short.path)?;
        Ok(Socket { listener, path: self.path(bridge) })
    }

    /// Whether only this user can enter the folder.
    fn is_private(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|metadata| {
            metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0
        })
    }

    /// Removes the sockets of bridges that were killed.
    fn remove_dead(&self) {
        for bridge in self.bridges() {
            let Ok(short) = self.short(&bridge) else { continue };
            let connected = std::os::unix::net::UnixStream::connect(&short.path);
            if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(self.path(&bridge));
            }
        }
    }

    /// Returns the names of the bridges that may listen, in order; none if others could have put something there.
    pub(super) fn bridges(&self) -> Vec<String> {
        if !self.is_private() {
            return Vec::new();
        }
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut bridges: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(ENDING)?.to_owned())).collect();
        bridges.sort();
        bridges
    }

    /// Connects to a bridge; None if it is gone, or is not of this user.
    pub(super) async fn connect(&self, bridge: &str) -> Option<UnixStream> {
        let is_name = !bridge.is_empty() && bridge.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name || !self.is_private() {
            return None;
        }
        let short = self.short(bridge).ok()?;
        match UnixStream::connect(&short.path).await {
            Ok(stream) => is_own(&stream).then_some(stream),
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    let _ = fs::remove_file(self.path(bridge));
                }
                None
            }
        }
    }
}

/// Whether the process at the other end is of the same user.
pub(super) fn is_own(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_killed_bridge_leaves_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let sockets = Sockets::at(state.path());
        assert!(sockets.bridges().is_empty() && sockets.connect("aaaaaaaa").await.is_none());
        let lives = sockets.listen("aaaaaaaa").unwrap();
        // As a killed process leaves it.
        for dead in ["bbbbbbbb", "cccccccc"] {
            drop(std::os::unix::net::UnixListener::bind(sockets.path(dead)).unwrap());
        }
        assert_eq!(sockets.bridges().len(), 3);
        assert!(sockets.connect("bbbbbbbb").await.is_none());
        assert_eq!(sockets.bridges(), ["aaaaaaaa", "cccccccc"]);
        assert!(sockets.connect("aaaaaaaa").await.is_some());
        let other = sockets.listen("dddddddd").unwrap();
        assert_eq!(sockets.bridges(), ["aaaaaaaa", "dddddddd"]);
        drop((lives, other));
        assert!(sockets.bridges().is_empty());
        assert!(sockets.connect("../bridges/x").await.is_none());
    }

    #[tokio::test]
    async fn a_long_path_is_no_obstacle_and_a_folder_of_others_is_one() {
        let state = tempfile::tempdir().unwrap();
        let deep = state.path().join("x".repeat(150));
        let sockets = Sockets::at(&deep);
        let listening = sockets.listen("aaaaaaaa").unwrap();
        assert_eq!(fs::metadata(sockets.path("aaaaaaaa")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&sockets.0).unwrap().mode() & 0o777, 0o700);
        assert!(sockets.connect("aaaaaaaa").await.is_some());
        fs::set_permissions(&sockets.0, Permissions::from_mode(0o755)).unwrap();
        assert!(sockets.bridges().is_empty() && sockets.connect("aaaaaaaa").await.is_none());
        assert!(sockets.listen("bbbbbbbb").is_err());
        drop(listening);
    }
}
