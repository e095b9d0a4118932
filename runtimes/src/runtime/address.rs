//! Which engine a client talks to, and everything that is needed to reach the same engine again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::target::{RuntimeKind, Target};
use crate::secrets;

/// How one engine is reached, from this process and from others: a reaper, a later bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The connection or context for the client.
    #[serde(default)]
    pub connection: Option<String>,
    /// The variables that select an engine when no connection is named, as they were when it was chosen. Without passwords,
    /// because records contain this.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// The variables that select an engine for podman's client:
/// <https://docs.podman.io/en/latest/markdown/podman.1.html#environment-variables>. They take precedence over `--connection`.
const PODMAN_VARIABLES: &[&str] = &["CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINER_SSHKEY"];
/// The same for docker's client: <https://docs.docker.com/reference/cli/docker/#environment-variables>. `DOCKER_CONFIG` is the
/// folder of the contexts.
const DOCKER_VARIABLES: &[&str] =
    &["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", DOCKER_CONFIG];
const DOCKER_CONFIG: &str = "DOCKER_CONFIG";
const DOCKER_CONTEXT: &str = "DOCKER_CONTEXT";
/// The context of docker's client when none is set up, or `DOCKER_HOST` is set.
const DEFAULT_CONTEXT: &str = "default";

/// The same for kubectl: the file of the contexts.
const KUBECTL_VARIABLES: &[&str] = &[KUBECONFIG];
const KUBECONFIG: &str = "KUBECONFIG";

fn variables_of(kind: RuntimeKind) -> &'static [&'static str] {
    match kind {
        RuntimeKind::Podman => PODMAN_VARIABLES,
        RuntimeKind::Docker => DOCKER_VARIABLES,
        RuntimeKind::Kubernetes => KUBECTL_VARIABLES,
        RuntimeKind::Crun | RuntimeKind::Runc => &[],
    }
}

impl Address {
    /// Returns the current address of a target.
    pub(crate) fn of(target: &Target) -> Self {
        Self::with(target, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn with(target: &Target, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut variables = BTreeMap::new();
        if target.connection.is_none() || target.kind == RuntimeKind::Kubernetes {
            let set = |name: &&str| Some((name.to_string(), without_secret(name, &variable(name)?)));
            variables.extend(variables_of(target.kind).iter().filter_map(set));
        }
        if target.kind == RuntimeKind::Docker {
            // The name of a context belongs to the folder that defines it.
            let folder = docker_config(&variable);
            let says_which = ["DOCKER_HOST", DOCKER_CONTEXT].iter().any(|name| variables.contains_key(*name));
            if target.connection.is_none() && !says_which {
                // `docker context use` may change the default at any time; running sandboxes stay where they are.
                variables.insert(DOCKER_CONTEXT.into(), current_context(folder.as_deref()));
            }
            variables.extend(folder.map(|folder| (DOCKER_CONFIG.into(), folder.display().to_string())));
        }
        if let Some(files) = variables.get_mut(KUBECONFIG) {
            // A reaper runs in another folder.
            let absolute =
                std::env::split_paths(files).map(|file| std::path::absolute(&file).unwrap_or(file));
            if let Some(joined) = std::env::join_paths(absolute).ok().and_then(|it| it.into_string().ok()) {
                *files = joined;
            }
        }
        Self { connection: target.connection.clone(), variables }
    }

    /// Returns the connection or context, whether it was named or is the default; None when it has no name.
    pub(crate) fn name(&self) -> Option<&str> {
        let context = || match self.variables.contains_key("DOCKER_HOST") {
            true => None,
            false => self.variables.get(DOCKER_CONTEXT).filter(|name| *name != DEFAULT_CONTEXT),
        };
        self.connection.as_ref().or_else(context).map(String::as_str)
    }

    /// Whether nothing selects an engine: the client uses what it uses by itself.
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the changes to a command's environment: each variable with its value, or None to remove it.
    pub(crate) fn environment(
        &self,
        kind: RuntimeKind,
    ) -> impl Iterator<Item = (&'static str, Option<String>)> {
        variables_of(kind).iter().map(|&name| {
            let value = self.variables.get(name).map(|value| {
                // With the password, when this process has it.
                let own = std::env::var(name).ok().filter(|own| without_secret(name, own) == *value);
                own.unwrap_or_else(|| value.clone())
            });
            (name, value)
        })
    }

    /// Returns the URL of the engine when a variable says that it is remote.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let urls = secrets::URLS.iter().filter_map(|name| self.variables.get(*name));
        urls.map(String::as_str).find(|url| !url.starts_with("unix:"))
    }
}

/// Returns a variable's value without a password.
fn without_secret(name: &str, value: &str) -> String {
    if secrets::URLS.contains(&name) { secrets::without_password(value) } else { value.to_string() }
}

/// Returns the folder with the configuration and the contexts of docker's client.
fn docker_config(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(variable("HOME")?).join(".docker"));
    variable(DOCKER_CONFIG).map(PathBuf::from).or_else(usual)
}

/// Returns the default context of docker's client: `currentContext` in its configuration
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
    fn a_named_connection_overrides_the_environment() {
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
