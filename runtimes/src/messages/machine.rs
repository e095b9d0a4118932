//! What podman says about its machines. Where a message was not captured by us, its parser names the report that it is from.

use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Machine {
    pub(crate) name: String,
    #[serde(rename = "Default", default)]
    pub(crate) is_default: bool,
    #[serde(default)]
    pub(crate) running: bool,
    #[serde(default)]
    pub(crate) starting: bool,
    /// When the machine was last up, as podman writes it; changes with every run of the machine.
    #[serde(default, deserialize_with = "empty_if_null")]
    pub(crate) last_up: String,
    #[serde(default, deserialize_with = "empty_if_null")]
    pub(crate) created: String,
}

fn empty_if_null<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Reads `machine list --format json`. Numbers are strings in it, newer versions have more fields, and the oldest ones take
/// `json` for a template.
pub(crate) fn parse_list(stdout: &[u8]) -> Option<Vec<Machine>> {
    serde_json::from_slice(stdout).ok()
}

/// The template for versions whose list has no JSON. The name of the default machine ends in `*`, and a machine that runs was
/// last up `Currently running`.
pub(crate) const LIST_TEMPLATE: &str = "{{.Name}}\t{{.LastUp}}";

/// Reads the lines of [`LIST_TEMPLATE`].
pub(crate) fn parse_plain_list(stdout: &[u8]) -> Vec<Machine> {
    let text = String::from_utf8_lossy(stdout);
    let machine = |line: &str| {
        let mut cells = line.split('\t');
        let name = cells.next()?.trim();
        let last_up = cells.next()?.trim();
        let running = last_up == "Currently running";
        (!name.is_empty() && name != "NAME").then(|| Machine {
            name: name.trim_end_matches('*').into(),
            is_default: name.ends_with('*'),
            running,
            starting: last_up == "Currently starting",
            // Relative to now: useless to tell runs or machines apart.
            last_up: String::new(),
            created: String::new(),
        })
    };
    text.lines().filter_map(machine).collect()
}

/// Returns the default connection of `system connection list --format json` (4.3.1 and 5.8.6, captured).
pub(crate) fn parse_default_connection(stdout: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Connection {
        name: String,
        #[serde(default)]
        default: bool,
    }
    let connections: Vec<Connection> = serde_json::from_slice(stdout).ok()?;
    connections.into_iter().find(|connection| connection.default).map(|connection| connection.name)
}

/// Returns the system that this podman was built for: `Host.OS` of `machine info --format json`, 4.2 and newer.
pub(crate) fn parse_client_system(stdout: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Info {
        host: Host,
    }
    #[derive(Deserialize)]
    struct Host {
        #[serde(rename = "OS")]
        system: String,
    }
    let info: Info = serde_json::from_slice(stdout).ok()?;
    Some(info.host.system)
}

/// Recognises a version without a flag: ``Error: unknown flag: --volume`` (4.3.1 and 5.8.6, captured).
pub(crate) fn parse_unknown_flag(stderr: &str) -> Option<()> {
    stderr.contains("unknown flag").then_some(())
}

/// Recognises that somebody else starts the machine, or has started it:
///
/// - 4.2 (podman issue 12751): ``Error: machine "podman-machine-default" is already in the process of being started``
/// - 4.3.1 (its source): ``cannot start VM podman-machine-default: VM already running or starting``
/// - 5.x (its source and tests): ``Error: unable to start "podman-machine-default": already running``
pub(crate) fn parse_already_starting(stderr: &str) -> Option<()> {
    let words = [
        "VM already running or starting",
        "is already in the process of being started",
        "\": already running",
    ];
    words.iter().any(|words| stderr.contains(words)).then_some(())
}

/// Returns whether this podman can run containers by itself, from the flags in its `--help`: a podman that is only a client, as
/// on macOS and Windows, has no flag for a storage of its own (the source from 3.4 on; 4.3.1, captured).
pub(crate) fn parse_has_own_engine(stdout: &[u8]) -> Option<bool> {
    let text = String::from_utf8_lossy(stdout);
    let has = |flag: &str| text.lines().any(|line| line.trim_start().starts_with(flag));
    has("--log-level ").then(|| has("--root "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::tests::podman_text as fixture;

    #[test]
    fn lists_of_every_version_are_read() {
        assert_eq!(parse_list(fixture("list 4.3 empty").as_bytes()), Some(Vec::new()));
        let old = parse_list(fixture("list 4.3").as_bytes()).unwrap();
        assert_eq!((old.len(), old[0].name.as_str()), (1, "podman-machine-default"));
        assert!(old[0].is_default && !old[0].running && !old[0].last_up.is_empty());
        let made = parse_list(fixture("list 5.8").as_bytes()).unwrap();
        assert!(made[0].is_default && !made[0].running && made[0].last_up.starts_with("0001-"));
        let new = parse_list(fixture("list 5").as_bytes()).unwrap();
        assert!(new[0].running && !new[1].is_default && new[1].starting);
        assert_eq!(parse_list(b"NAME\tVM TYPE"), None);
        let plain = parse_plain_list(fixture("list 3.4").as_bytes());
        assert_eq!(plain.len(), 2);
        assert!(plain[0].is_default && plain[0].running && plain[0].name == "podman-machine-default");
        assert!(!plain[1].running);
    }

    #[test]
    fn other_outputs_of_each_version_are_read() {
        assert_eq!(parse_client_system(fixture("machine info 4.3").as_bytes()).as_deref(), Some("linux"));
        assert_eq!(parse_client_system(fixture("machine info 5.8").as_bytes()).as_deref(), Some("linux"));
        assert_eq!(parse_client_system(b"Error: unrecognized command"), None);
        for name in ["connections 4.3", "connections 5.8"] {
            let default = parse_default_connection(fixture(name).as_bytes());
            assert_eq!(default.as_deref(), Some("podman-machine-default"), "{name}");
        }
        assert!(parse_unknown_flag(&fixture("set volume 4.3")).is_some());
        assert!(parse_unknown_flag(&fixture("set volume 5.8")).is_some());
        for name in ["start twice 4.2", "start twice 4.3", "start twice 5.8"] {
            assert!(parse_already_starting(&fixture(name)).is_some(), "{name}");
        }
        assert!(parse_already_starting(&fixture("start failed 4.9")).is_none());
        assert!(parse_already_starting(&fixture("start another 5.8")).is_none());
        assert_eq!(parse_has_own_engine(fixture("help 4.3").as_bytes()), Some(true));
        assert_eq!(parse_has_own_engine(fixture("help 4.3 remote").as_bytes()), Some(false));
        assert_eq!(parse_has_own_engine(b"podman: command not found"), None);
    }
}
