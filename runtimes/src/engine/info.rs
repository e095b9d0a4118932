//! What an engine reports about itself: the output of its `info`.

use serde::Deserialize;

/// What an engine reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineInfo {
    /// Whether it can hold memory and pids limits with control groups.
    pub(crate) limits: bool,
    /// Whether it reports that it runs on another machine.
    pub(crate) remote: bool,
    pub(crate) cpus: u32,
    /// The number of running containers, whoever started them.
    pub(crate) running: u32,
    /// The host name and the kernel of its machine.
    pub(crate) host: (String, String),
    /// The operating system that it runs on, in its own words.
    pub(crate) system: String,
    /// How many user and group ids it has, from 0 on, when all its containers share one user namespace.
    pub(crate) ids: Option<(u32, u32)>,
}

/// `podman info --format '{{json .}}'`. Rootless podman on cgroup v1 ignores limits:
/// <https://github.com/containers/podman/blob/main/rootless.md>.
pub(super) fn parse_podman_info(stdout: &[u8]) -> Option<EngineInfo> {
    #[derive(Deserialize)]
    struct Info {
        host: Host,
        #[serde(default)]
        store: Store,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Host {
        cgroup_version: Option<String>,
        cgroup_controllers: Option<Vec<String>>,
        service_is_remote: bool,
        security: Option<Security>,
        cpus: u32,
        hostname: String,
        kernel: String,
        distribution: Distribution,
        #[serde(rename = "idMappings")]
        ids: Ids,
    }
    /// Both null for root.
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Ids {
        uidmap: Option<Vec<IdRange>>,
        gidmap: Option<Vec<IdRange>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Distribution {
        distribution: String,
        version: String,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Store {
        #[serde(rename = "containerStore")]
        containers: Containers,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Containers {
        running: u32,
    }
    #[derive(Deserialize)]
    struct Security {
        rootless: bool,
    }
    let Info { host, store } = serde_json::from_slice(stdout).ok()?;
    let controllers = host.cgroup_controllers.unwrap_or_default();
    let delegated = ["memory", "pids"].iter().all(|name| controllers.iter().any(|c| c == name));
    let (security, version) = (host.security?, host.cgroup_version?);
    let limits = delegated && !(security.rootless && version == "v1");
    Some(EngineInfo {
        limits,
        remote: host.service_is_remote,
        cpus: host.cpus,
        running: store.containers.running,
        host: (host.hostname, host.kernel),
        system: format!("{} {}", host.distribution.distribution, host.distribution.version),
        ids: host.ids.uidmap.map(count_ids).zip(host.ids.gidmap.map(count_ids)),
    })
}

/// A line of a `uid_map`: <https://man7.org/linux/man-pages/man7/user_namespaces.7.html>.
#[derive(Deserialize)]
struct IdRange {
    #[serde(rename = "container_id")]
    first: u32,
    size: u32,
}

/// Returns how many ids there are from 0 on without a gap.
fn count_ids(mut ranges: Vec<IdRange>) -> u32 {
    ranges.sort_unstable_by_key(|range| range.first);
    let next =
        |end: u32, range: IdRange| if range.first == end { end.saturating_add(range.size) } else { end };
    ranges.into_iter().fold(0, next)
}

/// `docker info --format '{{json .}}'`: <https://docs.docker.com/reference/api/engine/> (`SystemInfo`). The client ends
/// with status 0 and `ServerErrors` when there is no daemon.
pub(super) fn parse_docker_info(stdout: &[u8]) -> Option<EngineInfo> {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "PascalCase")]
    struct Info {
        #[serde(rename = "ID")]
        id: String,
        memory_limit: Option<bool>,
        pids_limit: Option<bool>,
        #[serde(rename = "NCPU")]
        cpus: u32,
        containers_running: u32,
        name: String,
        kernel_version: String,
        operating_system: String,
        server_errors: Option<Vec<String>>,
    }
    let info: Info = serde_json::from_slice(stdout).ok()?;
    if info.id.is_empty() || info.server_errors.is_some_and(|errors| !errors.is_empty()) {
        return None;
    }
    let (memory, pids) = (info.memory_limit?, info.pids_limit?);
    Some(EngineInfo {
        limits: memory && pids,
        remote: false,
        cpus: info.cpus,
        running: info.containers_running,
        host: (info.name, info.kernel_version),
        system: info.operating_system,
        ids: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rootless_podman_on_cgroup_v1_holds_no_limits() {
        let info = |version: &str, rootless: bool, controllers: &str| {
            let text = format!(
                r#"{{"host":{{"cgroupVersion":"{version}","cgroupControllers":{controllers},"serviceIsRemote":false,"security":{{"rootless":{rootless}}}}}}}"#
            );
            parse_podman_info(text.as_bytes()).unwrap().limits
        };
        assert!(info("v1", false, r#"["memory","pids"]"#));
        assert!(!info("v1", true, r#"["memory","pids"]"#));
        assert!(info("v2", true, r#"["memory","pids"]"#));
        assert!(!info("v2", true, r#"["cpu"]"#));
        assert!(!info("v2", true, "null"));
    }

    #[test]
    fn ids_are_counted_up_to_the_first_gap() {
        let info = |ids: &str| {
            let text = format!(
                r#"{{"host":{{"cgroupVersion":"v1","security":{{"rootless":true}},"idMappings":{ids}}}}}"#
            );
            parse_podman_info(text.as_bytes()).unwrap().ids
        };
        let own = r#"{"container_id":0,"host_id":1000,"size":1}"#;
        let more = r#"{"container_id":1,"host_id":100000,"size":65536}"#;
        let away = r#"{"container_id":70000,"host_id":200000,"size":10}"#;
        assert_eq!(
            info(&format!(r#"{{"uidmap":[{more},{own}],"gidmap":[{own},{away}]}}"#)),
            Some((65537, 1))
        );
        assert_eq!(info(r#"{"uidmap":null,"gidmap":null}"#), None);
    }

    #[test]
    fn docker_info_without_a_daemon_is_not_an_engine() {
        let dead = br#"{"ID":"","MemoryLimit":false,"PidsLimit":false,"ServerErrors":["Cannot connect"]}"#;
        assert_eq!(parse_docker_info(dead), None);
        let live =
            br#"{"ID":"X","MemoryLimit":true,"PidsLimit":true,"NCPU":2,"ContainersRunning":3,"Name":"box"}"#;
        let info = parse_docker_info(live).unwrap();
        assert_eq!((info.limits, info.cpus, info.running, info.host.0.as_str()), (true, 2, 3, "box"));
    }
}
