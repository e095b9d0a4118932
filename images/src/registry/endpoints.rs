//! The addresses of a registry: mirrors first, over TLS unless the host is this machine or is configured as insecure.
//!
//! The configuration is that of other tools: containers-registries.conf(5) of podman and skopeo, and docker's
//! `daemon.json` (<https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file>).

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::Deserialize;

use super::environment::Environment;
use crate::name::RegistryName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Https,
    /// With any certificate.
    HttpsUnverified,
    Http,
}

/// One address of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Host, and port if it is not the default one.
    pub(crate) host: String,
    pub(crate) repository: String,
    pub(crate) scheme: Scheme,
}

impl Endpoint {
    /// Returns scheme and host, for messages.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.scheme == Scheme::Http { "http" } else { "https" };
        format!("{scheme}://{}", self.host)
    }
}

/// The configuration of registries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registries {
    known: Vec<Registry>,
    /// From docker, for docker.io only.
    docker_mirrors: Vec<Mirror>,
    docker_insecure: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Registry {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default, rename = "mirror")]
    mirrors: Vec<Mirror>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Mirror {
    location: String,
    #[serde(default)]
    insecure: bool,
}

impl Registries {
    /// Reads the configuration of this user and this machine; ignores a file that cannot be read, with a warning.
    pub(crate) fn of(environment: &Environment) -> Self {
        let mut registries = Self::default();
        for path in registries_files(environment) {
            let Some(text) = read(&path) else { continue };
            match toml::from_str::<Conf>(&text) {
                // Later files override earlier ones, and the first of equal prefixes is used.
                Ok(conf) => drop(registries.known.splice(0..0, conf.registry)),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "ignored a registries configuration file")
                }
            }
        }
        if let Some(text) = read(Path::new("/etc/docker/daemon.json")) {
            registries.add_docker(&text);
        }
        registries
    }

    fn add_docker(&mut self, text: &str) {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Daemon {
            #[serde(default)]
            registry_mirrors: Vec<String>,
            #[serde(default)]
            insecure_registries: Vec<String>,
        }
        let daemon: Daemon = match serde_json::from_str(text) {
            Ok(daemon) => daemon,
            Err(error) => return tracing::warn!(%error, "ignored docker's daemon.json"),
        };
        self.docker_mirrors.extend(daemon.registry_mirrors.into_iter().filter_map(|url| {
            let insecure = url.starts_with("http://");
            let location = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest).trim_end_matches('/');
            Some(Mirror { location: location.to_string(), insecure })
                .filter(|mirror| !mirror.location.is_empty())
        }));
        self.docker_insecure.extend(daemon.insecure_registries);
    }

    /// Returns the addresses of an image, in order; None when its registry is blocked.
    pub(crate) fn endpoints(&self, name: &RegistryName, plain_http: bool) -> Option<Vec<Endpoint>> {
        let whole = name.full_repository();
        let known = self.known.iter().filter_map(|known| Some((matched(known, &whole)?, known)));
        // The longest prefix counts; of equal ones the first.
        let known = known.min_by_key(|(length, _)| std::cmp::Reverse(*length));
        let mut endpoints = Vec::new();
        let mut add = |location: &str, insecure: bool| {
            let (host, repository) = location.split_once('/').unwrap_or((location, ""));
            let insecure =
                insecure || plain_http || self.docker_insecure.iter().any(|entry| covers(entry, host));
            let schemes: &[Scheme] = match (is_loopback(host), insecure) {
                // Nobody can listen on this machine, where few registries have certificates.
                (true, _) => &[Scheme::Http, Scheme::HttpsUnverified],
                (false, true) => &[Scheme::HttpsUnverified, Scheme::Http],
                (false, false) => &[Scheme::Https],
            };
            let (host, repository) = (host.to_string(), repository.to_string());
            endpoints.extend(schemes.iter().map(|scheme| Endpoint {
                host: host.clone(),
                repository: repository.clone(),
                scheme: *scheme,
            }));
        };
        let Some((length, known)) = known else {
            if name.registry == "docker.io" {
                for mirror in &self.docker_mirrors {
                    add(&format!("{}/{}", mirror.location, name.repository), mirror.insecure);
                }
            }
            add(&whole, false);
            return Some(endpoints);
        };
        if known.blocked {
            return None;
        }
        let rest = &whole[length..];
        for mirror in &known.mirrors {
            add(&format!("{}{rest}", mirror.location.trim_end_matches('/')), mirror.insecure);
        }
        // A prefix with an asterisk has no location.
        match known.location.as_str() {
            "" => add(&whole, known.insecure),
            location => add(&format!("{}{rest}", location.trim_end_matches('/')), known.insecure),
        }
        Some(endpoints)
    }
}

#[derive(Deserialize)]
struct Conf {
    #[serde(default)]
    registry: Vec<Registry>,
}

fn registries_files(environment: &Environment) -> Vec<PathBuf> {
    if let Some(path) = environment.path("CONTAINERS_REGISTRIES_CONF") {
        return vec![path];
    }
    let own = environment.config_home().map(|dir| dir.join("containers"));
    let system = Some(PathBuf::from("/etc/containers"));
    let main = [&own, &system].into_iter().flatten().map(|dir| dir.join("registries.conf"));
    let mut files: Vec<_> = main.filter(|path| path.is_file()).take(1).collect();
    for dir in [&system, &own].into_iter().flatten() {
        let Ok(entries) = std::fs::read_dir(dir.join("registries.conf.d")) else { continue };
        let mut drop_ins: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        drop_ins.retain(|path| path.extension().is_some_and(|ending| ending == "conf"));
        drop_ins.sort();
        files.extend(drop_ins);
    }
    files
}

fn read(path: &Path) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "ignored a registries configuration file");
            None
        }
    }
}

/// Returns how much of a repository the prefix of an entry matches; None when it does not.
fn matched(known: &Registry, whole: &str) -> Option<usize> {
    let prefix = if known.prefix.is_empty() { &known.location } else { &known.prefix };
    if let Some(domain) = prefix.strip_prefix("*.") {
        let host = &whole[..whole.find('/')?];
        return host.strip_suffix(domain)?.ends_with('.').then_some(host.len());
    }
    let rest = whole.strip_prefix(prefix.as_str())?;
    let ends = !prefix.is_empty() && (rest.is_empty() || rest.starts_with('/'));
    ends.then_some(prefix.len())
}

/// Returns whether an entry of docker's list of insecure registries means this host, by its name or its network.
fn covers(entry: &str, host: &str) -> bool {
    if entry == host {
        return true;
    }
    let network = entry.parse::<IpNet>();
    network.is_ok_and(|network| address(host).is_some_and(|address| network.contains(&address)))
}

/// Returns a host without its port.
fn bare(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(bare, _)| bare),
    }
}

fn address(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

/// Returns whether a host is this machine, by its name alone.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = bare(host);
    bare == "localhost"
        || bare.ends_with(".localhost")
        || address(host).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(registries: &Registries, name: &str) -> Vec<String> {
        let endpoints = registries.endpoints(&name.parse().unwrap(), false).unwrap_or_default();
        endpoints.iter().map(|endpoint| format!("{}/{}", endpoint.url(), endpoint.repository)).collect()
    }

    fn conf(text: &str) -> Registries {
        Registries { known: toml::from_str::<Conf>(text).unwrap().registry, ..Registries::default() }
    }

    #[test]
    fn by_default_only_this_machine_is_asked_without_tls() {
        let none = Registries::default();
        assert_eq!(urls(&none, "python:3"), ["https://docker.io/library/python"]);
        assert_eq!(
            urls(&none, "127.0.0.1:5000/a/b"),
            ["http://127.0.0.1:5000/a/b", "https://127.0.0.1:5000/a/b"]
        );
        assert_eq!(urls(&none, "localhost/x")[0], "http://localhost/x");
        assert_eq!(urls(&none, "127.example.org/x"), ["https://127.example.org/x"]);
        let asked = none.endpoints(&"example.org/x".parse().unwrap(), true).unwrap();
        assert_eq!(
            asked.iter().map(|e| e.scheme).collect::<Vec<_>>(),
            [Scheme::HttpsUnverified, Scheme::Http]
        );
    }

    #[test]
    fn mirrors_come_first_and_the_longest_prefix_counts() {
        let registries = conf(
            r#"
            unqualified-search-registries = ["example.com"]
            [[registry]]
            prefix = "docker.io"
            location = "hub.example/proxy"
            [[registry.mirror]]
            location = "mirror.example:5000/hub"
            insecure = true
            [[registry]]
            location = "docker.io/library/python"
            [[registry]]
            location = "evil.example"
            blocked = true
            [[registry]]
            prefix = "*.corp.example"
            insecure = true
            [aliases]
            "x" = "y"
            "#,
        );
        assert_eq!(
            urls(&registries, "ann/tools"),
            [
                "https://mirror.example:5000/hub/ann/tools",
                "http://mirror.example:5000/hub/ann/tools",
                "https://hub.example/proxy/ann/tools"
            ]
        );
        assert_eq!(urls(&registries, "python"), ["https://docker.io/library/python"]);
        assert_eq!(urls(&registries, "python2"), urls(&registries, "docker.io/library/python2"));
        assert!(urls(&registries, "python2")[0].contains("mirror"));
        assert!(registries.endpoints(&"evil.example/x".parse().unwrap(), false).is_none());
        assert_eq!(
            urls(&registries, "a.corp.example/x"),
            ["https://a.corp.example/x", "http://a.corp.example/x"]
        );
        assert_eq!(urls(&registries, "corp.example/x"), ["https://corp.example/x"]);
    }

    #[test]
    fn the_configuration_of_docker_is_read() {
        let mut registries = Registries::default();
        registries.add_docker(
            r#"{"registry-mirrors":["https://mirror.example/","http://plain.example"],
                "insecure-registries":["10.0.0.0/8","lab.example:5000"],"debug":true}"#,
        );
        assert_eq!(
            urls(&registries, "python"),
            [
                "https://mirror.example/library/python",
                "https://plain.example/library/python",
                "http://plain.example/library/python",
                "https://docker.io/library/python"
            ]
        );
        assert_eq!(urls(&registries, "quay.io/x/y"), ["https://quay.io/x/y"]);
        assert_eq!(urls(&registries, "lab.example:5000/x").len(), 2);
        assert_eq!(urls(&registries, "10.1.2.3:5000/x").len(), 2);
        assert_eq!(urls(&registries, "11.1.2.3:5000/x").len(), 1);
        registries.add_docker("no json");
    }
}
