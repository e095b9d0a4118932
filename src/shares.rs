//! Whether folders may be shared with code: they exist, and hold no secrets that are known by their place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::nearest::nearest_entry;
use crate::settings::variables::SHARE;
use crate::settings::{Environment, Settings, Share};
use crate::upstream::discovery::{Surroundings, User, user_files};

/// Places of credentials in a home folder.
const SECRETS: &[&str] = &[
    ".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".netrc", ".config/gcloud", ".config/gh",
    ".config/containers", ".git-credentials", ".npmrc", ".pypirc", ".password-store", ".mozilla",
    ".config/google-chrome", ".local/share/keyrings",
];

/// Those by which the home folder of somebody else is known.
const OTHER_SECRETS: &[&str] = &[
    ".ssh", ".aws", ".gnupg", ".kube", ".docker/config.json", ".azure", ".netrc", ".config/gcloud",
    ".git-credentials",
];

/// Why a folder is not shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("could not share '{}': {source}", .path.display())]
    Missing { path: PathBuf, source: io::Error },
    #[error("could not share '{}': it is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("did not share '{}': it {found}", .path.display())]
    Secret { path: PathBuf, found: Found },
}

/// What makes a folder secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is or contains that place.
    Contains(&'static str, PathBuf),
    /// It is within that place.
    Within(&'static str, PathBuf),
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Contains(what, path) => write!(f, "contains {what}, '{}'", path.display()),
            Self::Within(what, path) => write!(f, "is in {what}, '{}'", path.display()),
        }
    }
}

impl ShareError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Secret { .. } => Some(
                "share a folder without it; with `--share-anyway`, code reads all that is in this one".into(),
            ),
            Self::Missing { path, .. } if path.as_os_str().as_encoded_bytes().contains(&b',') => {
                Some("did you mean two shares? Each has its own flag: --share DIR --share DIR".into())
            }
            Self::Missing { path, .. } => Some(match nearest_entry(path, Path::is_dir) {
                Some(near) => format!("did you mean {}?", near.display()),
                None => "name a folder of this machine that exists: --share DIR".into(),
            }),
            Self::NotAFolder(_) => Some(
                "share the folder that it is in, or copy it into the sandbox: codebridge exec --in FILE"
                    .into(),
            ),
        }
    }
}

/// Looks at the shared folders and replaces each path by the one that it leads to.
///
/// # Errors
/// The first folder that does not exist, or that must not be shared unless the user says so twice.
pub fn check(settings: &mut Settings, environment: &Environment, command: &str) -> Result<(), ShareError> {
    if settings.share.is_empty() || !SHARE.acts_on(command) {
        return Ok(());
    }
    let anyway = settings.share_anyway.value;
    let secrets = if anyway { Vec::new() } else { secrets(settings, environment) };
    for Share { path, .. } in &mut settings.share.value {
        let real =
            path.canonicalize().map_err(|source| ShareError::Missing { path: path.clone(), source })?;
        if !real.is_dir() {
            return Err(ShareError::NotAFolder(path.clone()));
        }
        if !anyway && let Some(found) = find(&real, &secrets) {
            return Err(ShareError::Secret { path: path.clone(), found });
        }
        *path = real;
    }
    Ok(())
}

/// Whether a folder holds secrets that are known by their place, or is one of them.
pub fn is_secret(folder: &Path, settings: &Settings, environment: &Environment) -> bool {
    find(folder, &secrets(settings, environment)).is_some()
}

/// A place with secrets.
struct Secret {
    what: &'static str,
    path: PathBuf,
    /// Whether everything within it is secret too.
    whole: bool,
}

fn secrets(settings: &Settings, environment: &Environment) -> Vec<Secret> {
    let surroundings = Surroundings::of_process(settings, environment.clone().into(), User::default());
    let mut secrets = Vec::new();
    let mut add = |what, path: PathBuf, whole| {
        // What a link leads to is what must not be read.
        if let Ok(path) = path.canonicalize() {
            secrets.push(Secret { what, path, whole });
        }
    };
    add("the root folder", "/".into(), false);
    // The variable may name another folder than the one in which the user's programs left their logins.
    let own = fs::read_to_string("/etc/passwd").ok().and_then(|text| parse_home(&text, own_uid()));
    for home in surroundings.home.iter().chain(&own) {
        add("the home folder", home.clone(), false);
        SECRETS.iter().for_each(|name| add("credentials", home.join(name), true));
    }
    add("the state folder of codebridge", settings.state_dir.value.clone(), true);
    user_files(&surroundings).into_iter().for_each(|path| add("a configuration of MCP servers", path, true));
    secrets
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Returns the home folder of a user in `/etc/passwd`: `root:x:0:0:root:/root:/bin/bash`.
fn parse_home(text: &str, uid: u32) -> Option<PathBuf> {
    let mut users = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(uid)))?;
    user.get(5).map(PathBuf::from).filter(|home| home.is_absolute())
}

fn find(folder: &Path, secrets: &[Secret]) -> Option<Found> {
    for Secret { what, path, whole } in secrets {
        if path.starts_with(folder) {
            return Some(Found::Contains(what, path.clone()));
        }
        if *whole && folder.starts_with(path) {
            return Some(Found::Within(what, path.clone()));
        }
    }
    // The home folder of somebody else.
    let other =
        OTHER_SECRETS.iter().map(|name| folder.join(name)).find(|path| path.symlink_metadata().is_ok());
    other.map(|path| Found::Contains("credentials", path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::settings::RawSettings;

    /// Returns what is said of sharing a folder below a home folder.
    fn check_in(home: &Path, share: &str, more: &[(&str, &str)]) -> Result<PathBuf, String> {
        let place = |path: &str| home.join(path).display().to_string();
        let given = [
            ("HOME", place("")),
            ("MCP_BRIDGE_STATE_DIR", place("MCPs")),
            ("MCP_BRIDGE_SHARE", place(share) + ":x"),
        ];
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let environment: Environment =
            given.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value.into())).collect();
        let mut settings = Settings::resolve(&RawSettings::from_environment(&environment).unwrap()).unwrap();
        check(&mut settings, &environment, "exec").map_err(|error| error.to_string())?;
        assert_eq!(is_secret(&settings.share[0].path, &settings, &environment), settings.share_anyway.value);
        Ok(settings.share[0].path.clone())
    }

    #[test]
    fn the_home_folder_of_the_user_is_not_shared_whatever_the_variable_says() {
        let text =
            "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:1000::/home/me:/bin/sh\nno:x:7:7::none:\n";
        assert_eq!(parse_home(text, 1000), Some("/home/me".into()));
        assert_eq!((parse_home(text, 7), parse_home(text, 1)), (None, None));
        let Ok(text) = fs::read_to_string("/etc/passwd") else { return };
        let Some(own) = parse_home(&text, own_uid()).filter(|home| home.is_dir()) else { return };
        let base = tempfile::tempdir().unwrap();
        for home in ["", &base.path().display().to_string()] {
            let error = check_in(base.path(), own.to_str().unwrap(), &[("HOME", home)]).unwrap_err();
            assert!(error.contains("contains the home folder"), "{error}");
        }
    }

    #[test]
    fn a_folder_with_secrets_is_not_shared() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().canonicalize().unwrap();
        let folders = ["MCPs/tools", "work/src", "other/.aws", ".ssh/keys", ".config/gcloud", ".cursor"];
        folders.iter().for_each(|folder| fs::create_dir_all(home.join(folder)).unwrap());
        fs::write(home.join(".cursor/mcp.json"), "{}").unwrap();
        symlink(home.join(".ssh"), home.join("work/link")).unwrap();
        assert_eq!(check_in(&home, "work", &[]), Ok(home.join("work")));
        assert_eq!(check_in(&home, "work/src/..", &[]), Ok(home.join("work")));
        let refused = [
            ("", "contains the home folder"),
            ("..", "contains the home folder"),
            ("MCPs", "contains the state folder"),
            ("MCPs/tools", "is in the state folder"),
            (".ssh", "contains credentials"),
            (".ssh/keys", "is in credentials"),
            ("work/link", "contains credentials"),
            ("other", "contains credentials"),
            (".config", "contains credentials"),
            (".cursor", "contains a configuration of MCP servers"),
        ];
        for (share, why) in refused {
            let error = check_in(&home, share, &[]).unwrap_err();
            assert!(error.starts_with("did not share '") && error.contains(why), "{share}: {error}");
            assert!(check_in(&home, share, &[("MCP_BRIDGE_SHARE_ANYWAY", "1")]).is_ok(), "{share}");
        }
        let error = check_in(&home, "missing", &[]).unwrap_err();
        assert!(
            error.starts_with("could not share '")
                && error.ends_with("No such file or directory (os error 2)"),
            "{error}"
        );
        for (name, hint) in
            [("wrok", "did you mean "), ("work,other", "two shares"), ("wombat", "that exists")]
        {
            let (path, source) = (home.join(name), io::ErrorKind::NotFound.into());
            let found = ShareError::Missing { path, source }.hint().unwrap();
            assert!(found.contains(hint), "{found}");
        }
        assert!(check_in(&home, ".cursor/mcp.json", &[]).unwrap_err().ends_with("it is not a folder"));
    }
}
