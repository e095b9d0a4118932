//! Which engine a client talks to: the user's name for it, and all that has to be said to reach the same one again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::target::{RuntimeKind, Target};
use crate::secrets;

/// How one engine is reached, from this process and from others: a reaper, a later bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The connection or context that the client is told.
    #[serde(default)]
    pub connection: Option<String>,
    /// The variables that choose an engine where no connection is told, as they were when it was chosen, without passwords:
    /// this is written down.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// Variables by which podman's client chooses an engine:
/// <https://docs.podman.io/en/latest/markdown/podman.1.html#environment-variables>. They go before `--connection`.
const PODMAN_VARIABLES: &[&str] = &["CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINER_SSHKEY"];
/// The same of docker's: <https://docs.docker.com/reference/cli/docker/#environment-variables>. `DOCKER_CONFIG` is the
/// folder where contexts are kept.
const DOCKER_VARIABLES: &[&str] =
    &["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", DOCKER_CONFIG];
const DOCKER_CONFIG: &str = "DOCKER_CONFIG";
const DOCKER_CONTEXT: &str = "DOCKER_CONTEXT";
/// The context that docker's client has without any, and takes when `DOCKER_HOST` is set.
const DEFAULT_CONTEXT: &str = "default";

fn variables_of(kind: RuntimeKind) -> &'static [&'static str] {
    match kind {
        RuntimeKind::Podman => PODMAN_VARIABLES,
        RuntimeKind::Docker => DOCKER_VARIABLES,
        RuntimeKind::Crun | RuntimeKind::Runc => &[],
    }
}

impl Address {
    /// The address of a target as things are now.
    pub(crate) fn of(target: &Target) -> Self {
        Self::with(target, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn with(target: &Target, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut variables = BTreeMap::new();
        if target.connection.is_none() {
            let set = |name: &&str| Some((name.to_string(), shown(name, &variable(name)?)));
            variables.extend(variables_of(target.kind).iter().filter_map(set));
        }
        if target.kind == RuntimeKind::Docker {
            // A name means something in the folder that it was made in, whoever asks later.
            let folder = docker_config(&variable);
            let says_which = ["DOCKER_HOST", DOCKER_CONTEXT].iter().any(|name| variables.contains_key(*name));
            if target.connection.is_none() && !says_which {
                // `docker context use` changes it for everybody, at any time; what runs stays where it is.
                variables.insert(DOCKER_CONTEXT.into(), current_context(folder.as_deref()));
            }
            variables.extend(folder.map(|folder| (DOCKER_CONFIG.into(), folder.display().to_string())));
        }
        Self { connection: target.connection.clone(), variables }
    }

    /// The connection or context, whoever has named it; None for the one that is there without a name.
    pub(crate) fn name(&self) -> Option<&str> {
        let context = || match self.variables.contains_key("DOCKER_HOST") {
            true => None,
            false => self.variables.get(DOCKER_CONTEXT).filter(|name| *name != DEFAULT_CONTEXT),
        };
        self.connection.as_ref().or_else(context).map(String::as_str)
    }

    /// What a command's environment has to be changed to: each variable with its value, or without one.
    pub(crate) fn environment(
        &self,
        kind: RuntimeKind,
    ) -> impl Iterator<Item = (&'static str, Option<String>)> {
        variables_of(kind).iter().map(|&name| {
            let value = self.variables.get(name).map(|value| {
                // The same address with its password, when this process has that.
                let own = std::env::var(name).ok().filter(|own| shown(name, own) == *value);
                own.unwrap_or_else(|| value.clone())
            });
            (name, value)
        })
    }

    /// Where the engine is, as far as a variable says that it is elsewhere.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let urls = secrets::URLS.iter().filter_map(|name| self.variables.get(*name));
        urls.map(String::as_str).find(|url| !url.starts_with("unix:"))
    }
}

/// A variable's value as it may be written down.
fn shown(name: &str, value: &str) -> String {
    if secrets::URLS.contains(&name) { secrets::without_password(value) } else { value.to_string() }
}

/// The folder in which docker's client keeps its configuration and its contexts.
fn docker_config(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(variable("HOME")?).join(".docker"));
    variable(DOCKER_CONFIG).map(PathBuf::from).or_else(usual)
}

/// The context that docker's client uses when nobody says which: `currentContext` in its configuration
/// (<https://docs.docker.com/engine/manage-resources/contexts/>).
fn current_context(folder: Option<&Path>) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        current_context: String,
    }
    let text = folder.and_then(|folder| fs::read(folder.join("config.json")).ok()).unwrap_or_default();
    let config: Option<Config> = serde_json::from_slice(&text).ok();
    let named = config.map(|config| config.current_context).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| DEFAULT_CONTEXT.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_connection_hides_what_the_environment_says() {
        let target = "podman:big".parse::<Target>().unwrap();
        let address = Address::of(&target);
        assert!(address.environment(RuntimeKind::Podman).all(|(_, value)| value.is_none()));
        assert!(address.environment(RuntimeKind::Podman).any(|(name, _)| name == "CONTAINER_HOST"));
    }

    #[test]
    fn the_current_context_of_docker_is_part_of_the_address() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".docker")).unwrap();
        let write = |text: &str| fs::write(home.path().join(".docker/config.json"), text).unwrap();
        let address = |target: &str, set: &[(&str, &str)]| {
            let variable = |name: &str| match set.iter().find(|(key, _)| *key == name) {
                Some((_, value)) => Some(value.to_string()),
                None => (name == "HOME").then(|| home.path().display().to_string()),
            };
            Address::with(&target.parse::<Target>().unwrap(), variable)
        };
        let name = |set: &[(&str, &str)]| address("docker", set).name().map(String::from);
        let pinned = |set: &[(&str, &str)]| address("docker", set).variables.get(DOCKER_CONTEXT).cloned();
        assert_eq!((name(&[]), pinned(&[]).as_deref()), (None, Some("default")));
        write(r#"{"auths": {}, "currentContext": "colima"}"#);
        assert_eq!((name(&[]).as_deref(), pinned(&[]).as_deref()), (Some("colima"), Some("colima")));
        assert_eq!(name(&[("DOCKER_CONTEXT", "orbstack")]).as_deref(), Some("orbstack"));
        let both = [("DOCKER_HOST", "unix:///x.sock"), ("DOCKER_CONTEXT", "orbstack")];
        assert_eq!((name(&both), pinned(&both[..1])), (None, None));
        assert_eq!(name(&[("DOCKER_CONFIG", "/nowhere")]), None);
        assert_eq!(address("podman", &[]), Address::default());
        let named = address("docker:far", &[("DOCKER_HOST", "x"), ("DOCKER_CONFIG", "/etc/docker-client")]);
        assert_eq!(named.name(), Some("far"));
        assert_eq!(named.variables, BTreeMap::from([("DOCKER_CONFIG".into(), "/etc/docker-client".into())]));
        write("not json");
        assert_eq!(pinned(&[]).as_deref(), Some("default"));
    }
}
