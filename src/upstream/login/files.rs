//! The logins of one user on disk: one file for each server, which only its owner can read. The credentials of a login in the
//! keyring are not in its file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The folder of the logins, in the state folder.
const FOLDER: &str = "logins";
/// Bytes of a file.
const LONGEST_FILE: u64 = 1 << 20;
const LOGIN: &str = "json";
const LOCK: &str = "lock";

/// A login as it is written.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    pub(super) server: String,
    /// The server's URL, to which alone the token is sent.
    pub(super) url: String,
    /// The provider, to which alone the refresh token is sent.
    pub(super) issuer: String,
    /// Who logged in, if the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<String>,
    pub(super) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    /// The permissions that were granted.
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    /// Those that the server wanted later.
    #[serde(default)]
    pub(super) wanted: Vec<String>,
    /// Empty while the credentials are in the keyring.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<Timestamp>,
    /// When it is renewed: some time before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) renew_at: Option<Timestamp>,
    /// Where its credentials are, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) keyring: Option<InKeyring>,
}

/// Credentials in the keyring, as the file of a login names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InKeyring {
    /// The name in the keyring.
    pub(super) key: String,
    /// Another one with each change, so that nobody uses credentials that were replaced.
    pub(super) revision: String,
    /// Whether there is a refresh token.
    pub(super) renewed: bool,
}

impl StoredLogin {
    /// Returns it as it is written beside the keyring.
    pub(super) fn without_credentials(&self, place: InKeyring) -> Self {
        Self {
            access_token: String::new(),
            refresh_token: None,
            client_secret: None,
            keyring: Some(place),
            ..self.clone()
        }
    }

    /// Returns whether it is renewed without the person.
    pub(super) fn is_renewed(&self) -> bool {
        self.refresh_token.is_some() || self.keyring.as_ref().is_some_and(|place| place.renewed)
    }
}

impl std::fmt::Debug for StoredLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredLogin").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The logins of a state folder.
#[derive(Debug, Clone)]
pub(super) struct LoginFiles {
    folder: PathBuf,
}

/// A login that is being changed. No other process changes it meanwhile.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing the file unlocks it")] File);

impl LoginFiles {
    /// Returns the logins of a state folder. Nothing is read before it is needed.
    pub(super) fn at(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of a login in the keyring, where the logins of other state folders are too.
    pub(super) fn key(&self, server: &str, url: &str) -> String {
        let path = self.path(server, url, LOGIN);
        let path = std::path::absolute(&path).unwrap_or(path);
        hex::encode(&Sha256::digest(path.as_os_str().as_encoded_bytes())[..16])
    }

    fn path(&self, server: &str, url: &str, extension: &str) -> PathBuf {
        let name = Sha256::new_with_prefix(server).chain_update([0]).chain_update(url).finalize();
        self.folder.join(hex::encode(&name[..16])).with_extension(extension)
    }

    /// Returns the login to a server at this URL; None if there is none.
    pub(super) fn read(&self, server: &str, url: &str) -> io::Result<Option<StoredLogin>> {
        let login = read(&self.path(server, url, LOGIN))?;
        // Another file under this name would send its token to another server.
        Ok(login.filter(|login| login.server == server && login.url == url))
    }

    /// Writes a login in place of the one before.
    pub(super) fn write(&self, login: &StoredLogin) -> io::Result<()> {
        self.create_folder()?;
        // Beside it first, so that nobody reads half of it; only its owner can read it.
        let mut file = tempfile::Builder::new().prefix(".login-").tempfile_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(login)?)?;
        file.as_file().sync_all()?;
        file.persist(self.path(&login.server, &login.url, LOGIN)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Removes a login.
    pub(super) fn remove(&self, login: &StoredLogin) -> io::Result<()> {
        // The file of the lock stays: whoever waits for it must not be alone with another one.
        match fs::remove_file(self.path(&login.server, &login.url, LOGIN)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Waits until nobody else changes the login to a server. Blocks.
    pub(super) fn lock(&self, server: &str, url: &str) -> io::Result<Lock> {
        self.create_folder()?;
        let path = self.path(server, url, LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Lock(file))
    }

    /// Returns all logins, by server and URL. Files that are none are ignored.
    pub(super) fn list(&self) -> io::Result<Vec<StoredLogin>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == LOGIN) {
                all.extend(read(&path)?);
            }
        }
        all.sort_by(|a, b| (&a.server, &a.url).cmp(&(&b.server, &b.url)));
        Ok(all)
    }

    fn create_folder(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }
}

fn read(path: &Path) -> io::Result<Option<StoredLogin>> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {}
        read => drop(read?),
    }
    let login = serde_json::from_str(&text).ok();
    let login = login.filter(|login: &StoredLogin| !login.access_token.is_empty() || login.keyring.is_some());
    if login.is_none() {
        tracing::warn!(path = %path.display(), "ignored a login: its file is malformed");
    }
    Ok(login)
}

#[cfg(test)]
pub(super) fn a_login(server: &str, url: &str) -> StoredLogin {
    StoredLogin {
        server: server.into(),
        url: url.into(),
        issuer: "https://id.example".into(),
        account: None,
        client_id: "c".into(),
        client_secret: None,
        redirect_uri: "http://127.0.0.1:1/callback".into(),
        scopes: Vec::new(),
        wanted: Vec::new(),
        access_token: "hunter2-access".into(),
        refresh_token: Some("hunter2-refresh".into()),
        expires: None,
        renew_at: None,
        keyring: None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_login_is_for_one_server_at_one_url_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = LoginFiles::at(folder.path());
        let written = a_login("a", "https://a.example/mcp");
        store.write(&written).unwrap();
        let found = |server: &str, url: &str| store.read(server, url).unwrap().is_some();
        assert!(found("a", "https://a.example/mcp"));
        assert!(!found("a", "https://b.example/mcp") && !found("b", "https://a.example/mcp"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(store.folder()), 0o700);
        let path = store.path("a", "https://a.example/mcp", LOGIN);
        assert_eq!(mode(&path), 0o600);
        // A file that was moved does not bring its token to another server.
        fs::rename(&path, store.path("a", "https://b.example/mcp", LOGIN)).unwrap();
        assert!(!found("a", "https://b.example/mcp"));
        assert!(!format!("{written:?}").contains("hunter2"));
    }

    #[test]
    fn a_damaged_file_is_no_login_and_others_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = LoginFiles::at(folder.path());
        assert!(store.list().unwrap().is_empty());
        store.write(&a_login("a", "https://a.example/mcp")).unwrap();
        store.write(&a_login("b", "https://b.example/mcp")).unwrap();
        fs::write(store.path("a", "https://a.example/mcp", LOGIN), b"{\xff").unwrap();
        let names: Vec<String> = store.list().unwrap().into_iter().map(|login| login.server).collect();
        assert_eq!(names, ["b"]);
        store.remove(&a_login("b", "https://b.example/mcp")).unwrap();
        assert!(store.read("b", "https://b.example/mcp").unwrap().is_none());
    }
}
