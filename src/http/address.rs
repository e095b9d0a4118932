//! Where the bridge listens.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::error::HttpError;

/// Where the bridge listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(String),
    /// A socket that only the user of this process can open.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = HttpError;

    fn from_str(text: &str) -> Result<Self, HttpError> {
        let invalid = || HttpError::Address(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(invalid()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let is_host = !host.is_empty()
            && !host.contains(['/', '@', ' '])
            && (!host.contains(':') || host.starts_with('['));
        if is_host && port.parse::<u16>().is_ok() { Ok(Self::Tcp(text.to_owned())) } else { Err(invalid()) }
    }
}

/// Connections that the system keeps until they are accepted, as far as it is set so. Beyond them a client tries again after a
/// second: a flood must not do that to others.
const BACKLOG: u32 = 4096;

/// What listens.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl Address {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) async fn listen(&self) -> Result<Listener, HttpError> {
        let failed = |source| HttpError::Listen { address: self.to_string(), source };
        match self {
            Self::Tcp(address) => {
                let listener = bind(address).await.map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok(Listener::Tcp(listener, address))
            }
            Self::Unix(path) => {
                remove_dead_socket(path)?;
                // Nobody else can connect before the mode is set: the socket is made without any permissions.
                let listener = bind_privately(path).map_err(failed)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }
}

async fn bind(address: &str) -> io::Result<TcpListener> {
    let listen = |address: SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in tokio::net::lookup_host(address).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Removes a socket on which nobody listens any more.
fn remove_dead_socket(path: &PathBuf) -> Result<(), HttpError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() || UnixStream::connect(path).is_ok() {
        return Err(HttpError::Taken(path.clone()));
    }
    fs::remove_file(path).map_err(|source| HttpError::Listen { address: path.display().to_string(), source })
}

/// Binds under another name in a folder that only this user can enter, and moves the socket into its place.
fn bind_privately(path: &PathBuf) -> io::Result<UnixListener> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let folder = tempfile::Builder::new().prefix(".cb").tempdir_in(parent)?;
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    fs::rename(&socket, path)?;
    Ok(listener)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port_or_a_path() {
        for good in ["127.0.0.1:0", "[::1]:8765", "localhost:80", "0.0.0.0:443"] {
            assert_eq!(good.parse::<Address>().unwrap(), Address::Tcp(good.into()));
        }
        assert_eq!("unix:/run/x".parse::<Address>().unwrap(), Address::Unix("/run/x".into()));
        for bad in ["", "8765", ":8765", "localhost", "unix:", "::1:80", "http://x:80", "a:b", "a:70000"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
