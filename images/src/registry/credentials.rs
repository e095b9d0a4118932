//! Credentials for registries, from the files that `docker login` and `podman login` write and from credential helpers.
//!
//! containers-auth.json(5), <https://docs.docker.com/reference/cli/docker/login/#credential-stores>.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::environment::Environment;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    Password {
        user: String,
        password: String,
    },
    /// A token that the registry accepts as it is.
    Token(String),
    /// A token that the registry's token service exchanges for such a token.
    Identity(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password(…)",
            Self::Token(_) => "Token(…)",
            Self::Identity(_) => "Identity(…)",
        })
    }
}

/// Runs credential helpers, which are programs; this crate starts none.
pub trait CredentialHelper: Send + Sync {
    /// Returns what `docker-credential-NAME get` prints for a registry; None when it has no credentials for it.
    fn get<'a>(&'a self, name: &'a str, registry: &'a str) -> HelperAnswer<'a>;
}

/// The future of [`CredentialHelper::get`].
pub type HelperAnswer<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, HelperError>> + Send + 'a>>;

/// The reason why a credential helper returned nothing.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("credential helper '{0}' is not installed")]
    NotInstalled(String),
    #[error("credential helper '{program}' failed: {why}")]
    Failed { program: String, why: String },
}

/// The reason why credentials are unusable.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("failed to read the credentials in '{path}': {source}")]
    Read { path: PathBuf, source: io::Error },
    /// A file with credentials is no JSON of the expected form. What is there instead may be a secret.
    #[error("the credentials file '{path}' is invalid at line {line}, column {column}")]
    Invalid {
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    #[error("the credentials for '{registry}' in '{path}' are not base64 of `user:password`")]
    Encoding { path: PathBuf, registry: String },
    /// A file names a helper that cannot be a program of the right form.
    #[error("'{name}' in '{path}' is not a valid name of a credential helper")]
    HelperName { path: PathBuf, name: String },
    #[error(transparent)]
    Helper(#[from] HelperError),
    #[error("credential helper 'docker-credential-{0}' printed something other than credentials")]
    HelperOutput(String),
    /// An identity token is stored, but the registry does not exchange such tokens.
    #[error("an identity token is stored for the registry, but the registry names no token service")]
    NoTokenService,
}

/// Docker writes null for what is not set.
#[derive(Debug, Deserialize)]
struct AuthFile {
    auths: Option<BTreeMap<String, Auth>>,
    #[serde(rename = "credHelpers")]
    helpers: Option<BTreeMap<String, String>>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Deserialize)]
struct Auth {
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(…)")
    }
}

/// Returns the files with credentials, in the order in which they are read.
fn files(environment: &Environment) -> Vec<PathBuf> {
    if let Some(path) = environment.path("REGISTRY_AUTH_FILE") {
        return vec![path];
    }
    let runtime = environment.path("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json"));
    let config = environment.config_home().map(|dir| dir.join("containers/auth.json"));
    let docker = environment.path("DOCKER_CONFIG").or_else(|| Some(environment.home()?.join(".docker")));
    [runtime, config, docker.map(|dir| dir.join("config.json"))].into_iter().flatten().collect()
}

/// Returns the credentials for a repository of a registry, from the first file that has any.
pub(crate) async fn find(
    environment: &Environment,
    helper: &dyn CredentialHelper,
    host: &str,
    repository: &str,
) -> Result<Option<Credentials>, CredentialError> {
    for path in files(environment) {
        let Some(file) = read(&path)? else { continue };
        if let Some(found) = find_in(&path, &file, helper, host, repository).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Option<AuthFile>, CredentialError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(CredentialError::Read { path: path.into(), source }),
    };
    let invalid = |error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        CredentialError::Invalid { path: path.into(), line, column }
    };
    serde_json::from_slice(&text).map(Some).map_err(invalid)
}

async fn find_in(
    path: &Path,
    file: &AuthFile,
    helper: &dyn CredentialHelper,
    host: &str,
    repository: &str,
) -> Result<Option<Credentials>, CredentialError> {
    let names = host_names(host);
    for name in &names {
        if let Some(program) = file.helpers.as_ref().and_then(|helpers| helpers.get(*name))
            && let Some(found) = ask(path, helper, program, name).await?
        {
            return Ok(Some(found));
        }
    }
    if let Some((registry, auth)) = most_specific(file.auths.iter().flatten(), &names, repository)
        && let Some(found) = parse_auth(auth, path, registry)?
    {
        return Ok(Some(found));
    }
    if let Some(program) = &file.store {
        for name in &names {
            if let Some(found) = ask(path, helper, program, name).await? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Returns the names of a registry in such files; docker's own has several for historical reasons.
fn host_names(host: &str) -> Vec<&str> {
    match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => {
            vec!["https://index.docker.io/v1/", "docker.io", "index.docker.io", "registry-1.docker.io"]
        }
        host => vec![host],
    }
}

/// Returns the entry that names most of the repository.
fn most_specific<'a>(
    auths: impl Iterator<Item = (&'a String, &'a Auth)>,
    names: &[&str],
    repository: &str,
) -> Option<(&'a String, &'a Auth)> {
    let fits = |key: &str| {
        names.iter().find_map(|name| {
            if key == *name || without_url(key) == *name {
                return Some(0);
            }
            let part = key.strip_prefix(name)?.strip_prefix('/')?;
            let rest = repository.strip_prefix(part)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(part.len())
        })
    };
    let fitting = auths.filter_map(|(key, auth)| Some((fits(key)?, (key, auth))));
    fitting.max_by_key(|(length, _)| *length).map(|(_, entry)| entry)
}

/// Old versions of docker wrote `https://HOST/v1/`.
fn without_url(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key)
}

fn parse_auth(auth: &Auth, path: &Path, registry: &str) -> Result<Option<Credentials>, CredentialError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(token) = given(&auth.registrytoken) {
        return Ok(Some(Credentials::Token(token)));
    }
    if let Some(token) = given(&auth.identitytoken) {
        return Ok(Some(Credentials::Identity(token)));
    }
    let Some(text) = given(&auth.auth) else { return Ok(None) };
    let plain = STANDARD.decode(text.trim()).ok().and_then(|plain| String::from_utf8(plain).ok());
    let parts = plain.as_deref().and_then(|plain| plain.split_once(':'));
    let encoding = || CredentialError::Encoding { path: path.into(), registry: registry.into() };
    let (user, password) = parts.ok_or_else(encoding)?;
    // Docker fills up with zeros.
    let password = password.trim_end_matches('\0').to_string();
    Ok(Some(Credentials::Password { user: user.to_string(), password }))
}

async fn ask(
    path: &Path,
    helper: &dyn CredentialHelper,
    name: &str,
    registry: &str,
) -> Result<Option<Credentials>, CredentialError> {
    // It becomes the end of a program's name.
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(allowed) {
        return Err(CredentialError::HelperName { path: path.into(), name: name.into() });
    }
    let Some(answer) = helper.get(name, registry).await? else { return Ok(None) };
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        username: String,
        secret: String,
    }
    let answer: Answer =
        serde_json::from_slice(&answer).map_err(|_| CredentialError::HelperOutput(name.into()))?;
    Ok(Some(match answer.username.as_str() {
        "<token>" => Credentials::Identity(answer.secret),
        _ => Credentials::Password { user: answer.username, password: answer.secret },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct FakeHelper {
        asked: Mutex<Vec<String>>,
    }

    impl CredentialHelper for FakeHelper {
        fn get<'a>(&'a self, name: &'a str, registry: &'a str) -> HelperAnswer<'a> {
            self.asked.lock().unwrap().push(format!("{name} {registry}"));
            Box::pin(async move {
                match name {
                    "pass" => Ok(Some(br#"{"ServerURL":"x","Username":"u","Secret":"s"}"#.to_vec())),
                    "acr" => Ok(Some(br#"{"ServerURL":"x","Username":"<token>","Secret":"t"}"#.to_vec())),
                    "noisy" => Ok(Some(b"please unlock".to_vec())),
                    "broken" => Err(HelperError::NotInstalled("docker-credential-broken".into())),
                    _ => Ok(None),
                }
            })
        }
    }

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }

    async fn found(file: &str, host: &str, repository: &str) -> Result<Option<Credentials>, CredentialError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json");
        std::fs::write(&path, file).unwrap();
        found_at(&path, host, repository).await
    }

    async fn found_at(
        path: &Path,
        host: &str,
        repository: &str,
    ) -> Result<Option<Credentials>, CredentialError> {
        let environment =
            Environment::from_lookup(|name| (name == "REGISTRY_AUTH_FILE").then(|| path.into()));
        find(&environment, &FakeHelper::default(), host, repository).await
    }

    async fn refusal(file: &str, host: &str) -> String {
        found(file, host, "x").await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn entries_of_every_form_are_found() {
        // u:p, v:p, w:p with the zeros that docker adds
        let file = r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"},"quay.io":{"auth":"dTpw"},
            "quay.io/team":{"auth":"djpw"},"https://old.example/v1/":{"auth":"dzpwAAA="},"empty.example":{},
            "token.example":{"identitytoken":"id"},"direct.example":{"registrytoken":"r"}}}"#;
        for (host, repository, expected) in [
            ("docker.io", "library/python", password("u", "p")),
            ("quay.io", "other/x", password("u", "p")),
            ("quay.io", "team/x", password("v", "p")),
            ("quay.io", "teamwork/x", password("u", "p")),
            ("old.example", "x", password("w", "p")),
            ("empty.example", "x", None),
            ("nobody.example", "x", None),
            ("token.example", "x", Some(Credentials::Identity("id".into()))),
            ("direct.example", "x", Some(Credentials::Token("r".into()))),
        ] {
            assert_eq!(found(file, host, repository).await.unwrap(), expected, "{host}/{repository}");
        }
    }

    #[tokio::test]
    async fn helpers_are_asked_for_their_registry_and_the_store_for_the_rest() {
        let file = r#"{"auths":{"a.example":{}},"credHelpers":{"a.example":"pass","b.example":"acr",
            "c.example":"broken","d.example":"noisy","e.example":"../sh"},"credsStore":"nothing"}"#;
        assert_eq!(found(file, "a.example", "x").await.unwrap(), password("u", "s"));
        assert_eq!(found(file, "b.example", "x").await.unwrap(), Some(Credentials::Identity("t".into())));
        assert!(refusal(file, "c.example").await.contains("'docker-credential-broken' is not installed"));
        assert!(refusal(file, "d.example").await.contains("docker-credential-noisy"));
        assert!(refusal(file, "e.example").await.contains("not a valid name of a credential helper"));
        assert_eq!(found(file, "f.example", "x").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json");
        assert_eq!(found_at(&path, "a.example", "x").await.unwrap(), None, "no file, no credentials");
        assert_eq!(found_at(&path.join("file"), "a.example", "x").await.unwrap(), None);
        std::fs::create_dir(&path).unwrap();
        let error = found_at(&path, "a.example", "x").await.unwrap_err();
        assert!(matches!(error, CredentialError::Read { .. }));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "no json").unwrap();
        let error = found_at(&path, "a.example", "x").await.unwrap_err();
        assert!(matches!(error, CredentialError::Invalid { .. }));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert_eq!(found(r#"{"auths":null,"credHelpers":null}"#, "a.example", "x").await.unwrap(), None);
        let file = r#"{"auths":{"a.example":{"auth":"%%%"},"b.example":{"auth":"bm9jb2xvbg=="}}}"#;
        for host in ["a.example", "b.example"] {
            let text = refusal(file, host).await;
            assert!(text.contains(&format!("'{host}' in '")) && text.contains("not base64"), "{text}");
        }
    }

    #[test]
    fn the_files_of_podman_and_docker_are_read() {
        let environment = Environment::from_lookup(|name| match name {
            "HOME" => Some("/home/x".into()),
            "XDG_RUNTIME_DIR" => Some("/run/user/1".into()),
            _ => None,
        });
        let expected = [
            "/run/user/1/containers/auth.json",
            "/home/x/.config/containers/auth.json",
            "/home/x/.docker/config.json",
        ];
        assert_eq!(files(&environment), expected.map(PathBuf::from));
        assert!(format!("{:?}", Credentials::Token("secret".into())).len() < 12);
    }
}
