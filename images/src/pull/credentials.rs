//! Who one is to a registry: from the files that `docker login` and `podman login` write, and from credential helpers.
//!
//! containers-auth.json(5), <https://docs.docker.com/reference/cli/docker/login/#credential-stores>.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::environment::Environment;

/// What proves who one is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Password {
        user: String,
        password: String,
    },
    /// A token that the registry takes as it is.
    Token(String),
    /// A token that the registry's own login gives such tokens for.
    Identity(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password(…)",
            Self::Token(_) => "Token(…)",
            Self::Identity(_) => "Identity(…)",
        })
    }
}

/// Runs credential helpers: programs, which are not started here.
pub trait CredentialHelper: Send + Sync {
    /// What `docker-credential-NAME get` prints for a registry; the error is shown to people.
    fn get<'a>(&'a self, name: &'a str, registry: &'a str) -> HelperAnswer<'a>;
}

/// What a helper printed; None when it knows nothing of that registry.
pub type HelperAnswer<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, String>> + Send + 'a>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuthFile {
    auths: BTreeMap<String, Auth>,
    #[serde(rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth(…)")
    }
}

/// The files that are looked into, first one first.
pub(super) fn files(environment: &Environment) -> Vec<PathBuf> {
    if let Some(path) = environment.path("REGISTRY_AUTH_FILE") {
        return vec![path];
    }
    let runtime = environment.path("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json"));
    let config = environment.config_home().map(|dir| dir.join("containers/auth.json"));
    let docker = environment.path("DOCKER_CONFIG").or_else(|| Some(environment.home()?.join(".docker")));
    [runtime, config, docker.map(|dir| dir.join("config.json"))].into_iter().flatten().collect()
}

/// What there is for a repository of a registry.
pub(super) async fn find(
    environment: &Environment,
    helper: &dyn CredentialHelper,
    host: &str,
    repository: &str,
) -> Result<Option<Credentials>, String> {
    for path in files(environment) {
        let Some(file) = read(&path) else { continue };
        if let Some(found) = find_in(&file, helper, host, repository).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Option<AuthFile> {
    let text = std::fs::read(path).ok()?;
    match serde_json::from_slice(&text) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a file of credentials is left out");
            None
        }
    }
}

async fn find_in(
    file: &AuthFile,
    helper: &dyn CredentialHelper,
    host: &str,
    repository: &str,
) -> Result<Option<Credentials>, String> {
    let names = host_names(host);
    for name in &names {
        if let Some(program) = file.helpers.get(*name)
            && let Some(found) = ask(helper, program, name).await?
        {
            return Ok(Some(found));
        }
    }
    if let Some(auth) = best(&file.auths, &names, repository)
        && let Some(found) = read_auth(auth)?
    {
        return Ok(Some(found));
    }
    if let Some(program) = &file.store {
        for name in &names {
            if let Some(found) = ask(helper, program, name).await? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// By which names a registry is known to such files; docker's own has several for historical reasons.
fn host_names(host: &str) -> Vec<&str> {
    match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => {
            vec!["https://index.docker.io/v1/", "docker.io", "index.docker.io", "registry-1.docker.io"]
        }
        host => vec![host],
    }
}

/// The entry that speaks of most of the repository's name.
fn best<'a>(auths: &'a BTreeMap<String, Auth>, names: &[&str], repository: &str) -> Option<&'a Auth> {
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
    let fitting = auths.iter().filter_map(|(key, auth)| Some((fits(key)?, auth)));
    fitting.max_by_key(|(length, _)| *length).map(|(_, auth)| auth)
}

/// Old versions of docker wrote `https://HOST/v1/`.
fn without_url(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key)
}

fn read_auth(auth: &Auth) -> Result<Option<Credentials>, String> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(token) = given(&auth.registrytoken) {
        return Ok(Some(Credentials::Token(token)));
    }
    if let Some(token) = given(&auth.identitytoken) {
        return Ok(Some(Credentials::Identity(token)));
    }
    let Some(text) = given(&auth.auth) else { return Ok(None) };
    let bad = || "the credentials in the file are not base64 of `user:password`".to_string();
    let plain = String::from_utf8(STANDARD.decode(text.trim()).map_err(|_| bad())?).map_err(|_| bad())?;
    let (user, password) = plain.split_once(':').ok_or_else(bad)?;
    // Docker fills up with zeros.
    let password = password.trim_end_matches('\0').to_string();
    Ok(Some(Credentials::Password { user: user.to_string(), password }))
}

async fn ask(
    helper: &dyn CredentialHelper,
    program: &str,
    registry: &str,
) -> Result<Option<Credentials>, String> {
    // It becomes the end of a program's name.
    if program.is_empty()
        || !program.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    {
        return Err(format!("'{program}' is no name of a credential helper"));
    }
    let Some(answer) = helper.get(program, registry).await? else { return Ok(None) };
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        username: String,
        secret: String,
    }
    let answer: Answer = serde_json::from_slice(&answer).map_err(|error| {
        format!("docker-credential-{program} answers something else than it should: {error}")
    })?;
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
                    "broken" => Err("docker-credential-broken is not installed".into()),
                    _ => Ok(None),
                }
            })
        }
    }

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }

    async fn found(file: &str, host: &str, repository: &str) -> Result<Option<Credentials>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json");
        std::fs::write(&path, file).unwrap();
        let environment =
            Environment::from_lookup(|name| (name == "REGISTRY_AUTH_FILE").then(|| path.clone().into()));
        find(&environment, &FakeHelper::default(), host, repository).await
    }

    #[tokio::test]
    async fn entries_of_all_ages_are_found() {
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
    async fn helpers_are_asked_for_their_registry_and_stores_for_the_rest() {
        let file = r#"{"auths":{"a.example":{}},"credHelpers":{"a.example":"pass","b.example":"acr",
            "c.example":"broken","d.example":"noisy","e.example":"../sh"},"credsStore":"nothing"}"#;
        assert_eq!(found(file, "a.example", "x").await.unwrap(), password("u", "s"));
        assert_eq!(found(file, "b.example", "x").await.unwrap(), Some(Credentials::Identity("t".into())));
        assert!(found(file, "c.example", "x").await.unwrap_err().contains("not installed"));
        assert!(found(file, "d.example", "x").await.unwrap_err().contains("docker-credential-noisy"));
        assert!(found(file, "e.example", "x").await.unwrap_err().contains("no name of"));
        assert_eq!(found(file, "f.example", "x").await.unwrap(), None);
    }

    #[tokio::test]
    async fn damaged_files_and_entries_are_told_apart() {
        assert_eq!(found("no json", "a.example", "x").await.unwrap(), None);
        let file = r#"{"auths":{"a.example":{"auth":"%%%"},"b.example":{"auth":"bm9jb2xvbg=="}}}"#;
        for host in ["a.example", "b.example"] {
            assert!(found(file, host, "x").await.unwrap_err().contains("base64"));
        }
    }

    #[test]
    fn files_are_those_of_podman_and_docker() {
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
