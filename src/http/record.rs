//! Which listeners there are: one file for each in the state folder, for `codebridge doctor`.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, UnixStream};

use super::address::Address;
use crate::sizes::Amount;

/// The folder of the files, in the state folder.
const FOLDER: &str = "listeners";
/// Bytes of a file.
const LONGEST: u64 = 16 << 10;
/// How long a listener may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// A listener, as its process has recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// `HOST:PORT` or `unix:PATH`.
    pub address: String,
    pub pid: u32,
    /// The file of its certificate.
    pub certificate: Option<PathBuf>,
    /// The issuer whose tokens it accepts.
    pub issuer: Option<String>,
}

/// The record of this process. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Record(PathBuf);

impl Drop for Record {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.0);
    }
}

impl Record {
    /// Records a listener.
    pub(super) fn write(state_dir: &Path, listening: &Listening) -> io::Result<Self> {
        let folder = state_dir.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(listening.pid.to_string());
        // Whoever reads it sees all of it or nothing. Such files are 0600.
        let mut file = tempfile::Builder::new().prefix(".").tempfile_in(&folder)?;
        file.write_all(&serde_json::to_vec(listening)?)?;
        file.persist(&path)?;
        Ok(Self(path))
    }
}

/// Returns the listeners that accept connections. Files of others are removed.
pub async fn listeners(state_dir: &Path) -> Vec<Listening> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(state_dir.join(FOLDER)) else { return found };
    let names = entries.flatten().map(|entry| entry.path());
    for path in names.filter(|path| pid_of(path).is_some()) {
        let is_small = fs::metadata(&path).is_ok_and(|metadata| metadata.len() <= LONGEST);
        let text = is_small.then(|| fs::read(&path).ok()).flatten().unwrap_or_default();
        let listening = serde_json::from_slice::<Listening>(&text).ok();
        match listening {
            Some(listening) if answers(&listening).await => found.push(listening),
            _ => drop(fs::remove_file(&path)),
        }
    }
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

/// Returns the files of listeners whose processes have ended. Removes them if `remove` is set.
pub fn gone_listeners(state_dir: &Path, remove: bool) -> Amount {
    let is_gone = |path: &PathBuf| pid_of(path).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
    let entries = fs::read_dir(state_dir.join(FOLDER)).into_iter().flatten().flatten();
    let gone: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_gone).collect();
    let amount = Amount::of(gone.iter().map(PathBuf::as_path));
    if remove {
        gone.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    amount
}

fn pid_of(path: &Path) -> Option<Pid> {
    Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)
}

/// Whether a listener accepts connections.
async fn answers(listening: &Listening) -> bool {
    let connecting = async {
        match listening.address.parse() {
            Ok(Address::Tcp(address)) => TcpStream::connect(address).await.is_ok(),
            Ok(Address::Unix(path)) => UnixStream::connect(path).await.is_ok(),
            Err(_) => false,
        }
    };
    tokio::time::timeout(PATIENCE, connecting).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_is_found_as_long_as_it_accepts_connections() {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let listening = Listening { address, pid: 1, certificate: None, issuer: None };
        let record = Record::write(folder.path(), &listening).unwrap();
        assert_eq!(listeners(folder.path()).await, std::slice::from_ref(&listening));
        drop(listener);
        assert_eq!(listeners(folder.path()).await, []);
        assert!(!record.0.exists());
    }
}
