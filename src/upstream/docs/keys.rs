//! The keys of definitions in the catalogue.
//!
//! Another definition has another key. Definitions hold credentials, some of them easy to guess, and keys are names of
//! files: so they are made with a secret of the folder's own, without which no guess can be tried.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::upstream::catalog::create_folder;
use crate::upstream::discovery::{Auth, Definition, DocumentPlace, Launch, OpenApi};

/// The file of the secret, in the catalogue's folder.
const FILE: &str = "salt";
const LENGTH: usize = 32;

type Salt = [u8; LENGTH];

#[derive(Debug)]
pub(super) struct Keys {
    folder: PathBuf,
    /// The folder whose own definitions run in it; none when they are those of the user.
    project: Option<PathBuf>,
    salt: OnceLock<Salt>,
}

impl Keys {
    pub(super) fn new(folder: PathBuf, project: Option<PathBuf>) -> Self {
        Self { folder, project, salt: OnceLock::new() }
    }

    /// The key of a definition in a file. Blocks for a moment.
    pub(super) fn of(&self, source: &Path, definition: &Definition) -> Arc<str> {
        let salt = self.salt.get_or_init(|| {
            salt(&self.folder).unwrap_or_else(|error| {
                let folder = self.folder.display();
                tracing::warn!(%folder, %error, "could not read or create the salt for stored documentation");
                // Whatever is kept is found again by this process alone.
                random().unwrap_or_default()
            })
        });
        let offered = match &definition.launch {
            Launch::Stdio { command, args, env, cwd } => {
                // What a project says of its own files means others elsewhere.
                let project = self.project.as_deref().filter(|project| source.starts_with(project));
                let folder = cwd.as_deref().or(project).unwrap_or(Path::new(""));
                json!(["stdio", command, args, sorted(env), folder.as_os_str().as_encoded_bytes()])
            }
            Launch::Http { url, headers, older, .. } => json!(["http", older, url, sorted(headers)]),
            Launch::OpenApi(openapi) => {
                let OpenApi { document, base_url, auth, headers, .. } = &**openapi;
                let document = match document {
                    // A document that was changed offers something else.
                    DocumentPlace::File(path) => {
                        json!([path.as_os_str().as_encoded_bytes(), stamp(path)])
                    }
                    DocumentPlace::Url(url) => json!(url),
                };
                let auth = auth.as_ref().map(Auth::parts);
                json!(["openapi", document, base_url, auth, sorted(headers)])
            }
        };
        let hash = Sha256::new_with_prefix(salt).chain_update(offered.to_string()).finalize();
        hex::encode(hash).into()
    }
}

/// Returns what differs after a file was changed.
fn stamp(path: &Path) -> Option<(u64, i64, i64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.mtime(), found.mtime_nsec()))
}

/// Returns the pairs in an order of their own: that of a file says nothing.
fn sorted(pairs: &[(String, String)]) -> Vec<&(String, String)> {
    let mut sorted: Vec<_> = pairs.iter().collect();
    sorted.sort();
    sorted
}

/// The secret of a folder; the first one who wants it makes it.
fn salt(folder: &Path) -> io::Result<Salt> {
    create_folder(folder)?;
    let path = folder.join(FILE);
    if let Some(salt) = read(&path)? {
        return Ok(salt);
    }
    // Beside it first, for nobody to read half of it; only its owner can read it.
    let mut file = tempfile::Builder::new().prefix(".salt-").tempfile_in(folder)?;
    file.write_all(&random()?)?;
    match file.persist_noclobber(&path) {
        Ok(_) => {}
        Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => {}
        Err(refused) => return Err(refused.error),
    }
    read(&path)?.ok_or_else(|| io::Error::other("it was removed by another process"))
}

/// None when there is none; one that is damaged is removed.
fn read(path: &Path) -> io::Result<Option<Salt>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    if let Ok(salt) = bytes.try_into() {
        return Ok(Some(salt));
    }
    fs::remove_file(path)?;
    Ok(None)
}

fn random() -> io::Result<Salt> {
    let mut salt = Salt::default();
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    Ok(salt)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn stdio(change: impl FnOnce(&mut String, &mut Vec<String>, &mut Vec<(String, String)>)) -> Definition {
        let (mut command, mut args) = ("npx".to_owned(), vec!["-y".to_owned(), "some-server".to_owned()]);
        let mut env = vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())];
        change(&mut command, &mut args, &mut env);
        launched(Launch::Stdio { command, args, env, cwd: None })
    }

    fn launched(launch: Launch) -> Definition {
        Definition { launch, startup_timeout: None, call_timeout: None, filled_in: Vec::new() }
    }

    fn http(url: &str, token: &str) -> Definition {
        let headers = vec![("Authorization".to_owned(), token.to_owned())];
        launched(Launch::Http { url: url.into(), headers, older: false, options: Arc::default() })
    }

    #[test]
    fn another_definition_has_another_key() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::new(folder.path().into(), None);
        let key = |definition: &Definition| keys.of(Path::new("/a.json"), definition);
        let definitions = [
            stdio(|_, _, _| {}),
            stdio(|command, _, _| command.push('x')),
            stdio(|_, args, _| args[1] = "other-server".into()),
            stdio(|_, args, _| args[0] = "-ysome-server".into()),
            stdio(|_, args, _| *args = vec!["-ysome-server".into()]),
            stdio(|_, _, env| env[0].1 = "2".into()),
            stdio(|_, _, env| env.truncate(1)),
            stdio(|_, args, env| {
                args.push("A".into());
                env.clear();
            }),
            http("http://127.0.0.1/a", "1"),
            http("http://127.0.0.1/a", "2"),
            http("http://127.0.0.1/b", "1"),
        ];
        let all: std::collections::HashSet<_> = definitions.iter().map(key).collect();
        assert_eq!(all.len(), definitions.len());
        assert_eq!(key(&definitions[0]), key(&stdio(|_, _, env| env.reverse())));
        let timed = Definition { startup_timeout: Some(std::time::Duration::ZERO), ..definitions[0].clone() };
        assert_eq!(key(&definitions[0]), key(&timed), "what it offers is the same");
    }

    #[test]
    fn bridges_of_one_folder_have_the_same_keys_and_others_do_not() {
        let [one, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let key =
            |folder: &Path| Keys::new(folder.into(), None).of(Path::new("/a.json"), &stdio(|_, _, _| {}));
        assert_eq!(key(one.path()), key(one.path()));
        assert_ne!(key(one.path()), key(other.path()));
        let mode = fs::metadata(one.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let before = key(one.path());
        fs::write(one.path().join(FILE), "damaged").unwrap();
        assert_ne!(key(one.path()), before);
        assert_eq!(key(one.path()), key(one.path()));
    }

    #[test]
    fn a_folder_that_cannot_be_written_has_keys_for_the_moment() {
        let keys = Keys::new("/proc/self/nowhere".into(), None);
        let key = || keys.of(Path::new("/a.json"), &stdio(|_, _, _| {}));
        assert_eq!(key(), key());
    }

    #[test]
    fn a_server_of_a_project_is_another_one_elsewhere() {
        let catalog = tempfile::tempdir().unwrap();
        let key = |project: &str, source: &str| {
            let keys = Keys::new(catalog.path().into(), Some(project.into()));
            keys.of(Path::new(source), &stdio(|_, args, _| args[1] = "server.py".into()))
        };
        assert_ne!(key("/one", "/one/.mcp.json"), key("/other", "/other/.mcp.json"));
        assert_eq!(key("/one", "/one/.mcp.json"), key("/one", "/one/mcp-servers/a.json"));
        assert_eq!(key("/one", "/home/a.json"), key("/other", "/home/a.json"));
    }

    #[test]
    fn ten_bridges_at_once_agree_on_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let salts: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..10).map(|_| scope.spawn(|| salt(folder.path()).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(salts.iter().all(|salt| *salt == salts[0] && *salt != Salt::default()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
