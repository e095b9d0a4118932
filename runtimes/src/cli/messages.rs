//! Reads what podman and docker say. Every parser quotes the messages it knows, as captured from real programs.

use serde::Deserialize;

use super::EngineInfo;
use crate::exec;
use crate::machine::parse_unreachable;
use crate::oci;
use crate::refusal::Refusal;

/// Understands why an engine did not start a container:
///
/// - docker 20.10: ``Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?``
/// - docker 28: ``permission denied while trying to connect to the Docker daemon socket``
/// - docker 29: ``failed to connect to the docker API at unix:///…; check if the path is correct …``, ``permission denied
///   while trying to connect to the docker API at unix:///…``
/// - docker 20.10: ``Unable to find image 'x:latest' locally``, ``No such image: x:latest``
/// - podman 4.3: ``Error: x: image not known``, ``short-name "x" did not resolve to an alias``
/// - docker: ``exec: "python3": executable file not found in $PATH: unknown.``
/// - podman 4.3.1: ``failed to resolve active destination: "x" service destination not found``
/// - podman 5.8.6: ``read cli flags: connection "x" not found``
/// - docker 20.10: ``unable to resolve docker endpoint: context "x" does not exist``
/// - podman without its machine or its service: see [`parse_unreachable`]
/// - docker 20.10 without the certificate: ``Error response from daemon: Client sent an HTTP request to an HTTPS server.``
/// - docker 20.10 over ssh: ``error during connect: Get "http://docker.example.com/v1.24/info": command [ssh -l …``
pub(super) fn parse_refusal(text: &str) -> Option<Refusal> {
    let has = |needle: &str| text.contains(needle);
    let message = || exec::tail(text.as_bytes());
    if has("Cannot connect to the Docker daemon")
        || has("trying to connect to the Docker daemon")
        || has("connect to the docker API at")
        || parse_unreachable(text).is_some()
        || has("docker.sock: connect: permission denied")
        || has("error during connect: ")
        || has("Client sent an HTTP request to an HTTPS server")
    {
        Some(Refusal::DaemonUnreachable { message: message(), product: None })
    } else if has("service destination not found")
        || (has("read cli flags: connection ") && has(" not found"))
        || has("unable to resolve docker endpoint")
    {
        Some(Refusal::UnknownConnection { message: message() })
    } else if let Some(image) = parse_missing_image(text) {
        Some(Refusal::ImageMissing { image, message: message() })
    } else {
        oci::parse_refusal(text)
    }
}

/// The image that an engine does not have and cannot get; see [`parse_refusal`].
fn parse_missing_image(text: &str) -> Option<String> {
    let missing =
        ["No such image: ", "Unable to find image '", "short-name \"", "unable to copy from source "];
    let named = missing.iter().find_map(|start| {
        let rest = &text[text.find(start)? + start.len()..];
        let end = rest.find(['\'', '"', ' ', '\n']).unwrap_or(rest.len());
        Some(rest[..end].trim_end_matches(':').to_string())
    });
    named.or_else(|| {
        let line = text.lines().find(|line| line.contains(": image not known"))?;
        Some(line.trim_start_matches("Error: ").split(": image not known").next()?.to_string())
    })
}

/// Nothing to remove: ``Error: No such container: x`` (docker), ``no such container`` (podman).
pub(super) fn parse_missing_container(stderr: &[u8]) -> Option<()> {
    let text = String::from_utf8_lossy(stderr).to_lowercase();
    text.contains("no such container").then_some(())
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
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Host {
        cgroup_version: String,
        #[serde(default)]
        cgroup_controllers: Option<Vec<String>>,
        #[serde(default)]
        service_is_remote: bool,
        security: Security,
        #[serde(default)]
        cpus: u32,
        #[serde(default)]
        hostname: String,
        #[serde(default)]
        kernel: String,
        #[serde(default)]
        distribution: Distribution,
    }
    #[derive(Deserialize, Default)]
    struct Distribution {
        #[serde(default)]
        distribution: String,
        #[serde(default)]
        version: String,
    }
    #[derive(Deserialize, Default)]
    struct Store {
        #[serde(rename = "containerStore", default)]
        containers: Containers,
    }
    #[derive(Deserialize, Default)]
    struct Containers {
        #[serde(default)]
        running: u32,
    }
    #[derive(Deserialize)]
    struct Security {
        rootless: bool,
    }
    let Info { host, store } = serde_json::from_slice(stdout).ok()?;
    let controllers = host.cgroup_controllers.unwrap_or_default();
    let delegated = ["memory", "pids"].iter().all(|name| controllers.iter().any(|c| c == name));
    let limits = delegated && !(host.security.rootless && host.cgroup_version == "v1");
    Some(EngineInfo {
        limits,
        remote: host.service_is_remote,
        cpus: host.cpus,
        running: store.containers.running,
        host: (host.hostname, host.kernel),
        system: format!("{} {}", host.distribution.distribution, host.distribution.version),
    })
}

/// `docker info --format '{{json .}}'`: <https://docs.docker.com/reference/api/engine/> (`SystemInfo`). The client ends
/// with status 0 and `ServerErrors` when there is no daemon.
pub(super) fn parse_docker_info(stdout: &[u8]) -> Option<EngineInfo> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Info {
        #[serde(rename = "ID")]
        id: String,
        memory_limit: bool,
        pids_limit: bool,
        #[serde(rename = "NCPU", default)]
        cpus: u32,
        #[serde(default)]
        containers_running: u32,
        #[serde(default)]
        name: String,
        #[serde(default)]
        kernel_version: String,
        #[serde(default)]
        operating_system: String,
        #[serde(default)]
        server_errors: Option<Vec<String>>,
    }
    let info: Info = serde_json::from_slice(stdout).ok()?;
    if info.id.is_empty() || info.server_errors.is_some_and(|errors| !errors.is_empty()) {
        return None;
    }
    Some(EngineInfo {
        limits: info.memory_limit && info.pids_limit,
        remote: false,
        cpus: info.cpus,
        running: info.containers_running,
        host: (info.name, info.kernel_version),
        system: info.operating_system,
    })
}

/// What `docker info` of 20.10 has to say without a daemon, in the place of an engine: ``{"ServerErrors":["Cannot connect …``
pub(super) fn parse_server_error(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Info {
        server_errors: Vec<String>,
    }
    let info: Info = serde_json::from_str(text).ok()?;
    Some(info.server_errors.join("\n")).filter(|errors| !errors.is_empty())
}

/// `image inspect`: the id and the environment of the first image.
pub(super) fn parse_image(stdout: &[u8]) -> Option<(String, Vec<String>)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Image {
        id: String,
        config: Option<Config>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        #[serde(default)]
        env: Option<Vec<String>>,
    }
    let mut images: Vec<Image> = serde_json::from_slice(stdout).ok()?;
    let image = (!images.is_empty()).then(|| images.swap_remove(0))?;
    let id = image.id.trim_start_matches("sha256:").to_string();
    let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| (id, image.config.and_then(|config| config.env).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_messages_are_understood() {
        let daemon = "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?";
        assert!(matches!(parse_refusal(daemon), Some(Refusal::DaemonUnreachable { .. })));
        let newer = "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct";
        assert!(matches!(parse_refusal(newer), Some(Refusal::DaemonUnreachable { .. })));
        assert_eq!(parse_server_error(r#"{"ServerErrors":["a"],"ClientInfo":{}}"#).as_deref(), Some("a"));
        assert_eq!(parse_server_error(r#"{"ID":"X","ServerErrors":[]}"#), None);
        assert_eq!(parse_server_error(daemon), None);
        for (text, name) in [
            ("Error response from daemon: No such image: python:3.99", "python:3.99"),
            ("Unable to find image 'python:3.99' locally", "python:3.99"),
            ("Error: python:3.99: image not known", "python:3.99"),
        ] {
            match parse_refusal(text) {
                Some(Refusal::ImageMissing { image, .. }) => assert_eq!(image, name),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(parse_refusal("exit status 3"), None);
    }

    #[test]
    fn rootless_on_cgroup_v1_holds_no_limits() {
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
    fn a_docker_client_without_a_daemon_is_no_engine() {
        let dead = br#"{"ID":"","MemoryLimit":false,"PidsLimit":false,"ServerErrors":["Cannot connect"]}"#;
        assert_eq!(parse_docker_info(dead), None);
        let live =
            br#"{"ID":"X","MemoryLimit":true,"PidsLimit":true,"NCPU":2,"ContainersRunning":3,"Name":"box"}"#;
        let info = parse_docker_info(live).unwrap();
        assert_eq!((info.limits, info.cpus, info.running, info.host.0.as_str()), (true, 2, 3, "box"));
    }
}
