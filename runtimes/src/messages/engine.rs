//! What podman and docker say.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::exec;
use crate::owner::Owner;
use crate::plan::OwnedSandbox;
use crate::refusal::Refusal;
use crate::spec::SandboxName;

use super::oci;

/// Returns why an engine did not start a container:
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
/// - docker over ssh: see [`parse_ssh_refusal`]; other messages are ``error during connect: Get
///   "http://docker.example.com/v1.24/info": command [ssh -l root -p 22 -- host docker system dial-stdio] has exited with exit
///   status 255, …: stderr=ssh: connect to host 127.0.0.1 port 4823: Connection refused`` (20.10 and 28.2, captured)
/// - podman 4.3.1 and 5.8.6: ``value of CONTAINER_HOST is not a valid url: ssh://…: parse "ssh://…": invalid port …``
/// - docker 20.10: ``parse "ssh://…": invalid port …``, ``ssh host connection is not valid: no host specified``; 28.2 the same
///   after ``Failed to initialize: ``
pub(crate) fn parse_refusal(text: &str) -> Option<Refusal> {
    let has = |needle: &str| text.contains(needle);
    let message = || exec::tail(text.as_bytes());
    if let Some(refusal) = parse_ssh_refusal(text) {
        Some(refusal)
    } else if has("Cannot connect to the Docker daemon")
        || has("trying to connect to the Docker daemon")
        || has("connect to the docker API at")
        || parse_unreachable(text).is_some()
        || has("docker.sock: connect: permission denied")
        || has("error during connect: ")
        || has("Client sent an HTTP request to an HTTPS server")
    {
        // docker 20.10 and 29, and podman of its socket.
        let denied = text.to_ascii_lowercase().contains("permission denied");
        let (message, at) = (message(), parse_address(text));
        Some(Refusal::DaemonUnreachable { message, engine: None, at, product: None, denied })
    } else if has("service destination not found")
        || (has("read cli flags: connection ") && has(" not found"))
        || has("unable to resolve docker endpoint")
        || has("CONTAINER_HOST is not a valid url")
        || has("parse \"ssh://")
        || has("ssh host connection is not valid")
    {
        Some(Refusal::UnknownConnection { message: message() })
    } else if let Some(image) = parse_missing_image(text) {
        Some(Refusal::ImageMissing { image, message: message(), hint: None })
    } else {
        oci::parse_refusal(text)
    }
}

/// Returns the address of an engine that did not answer, from the messages that [`parse_refusal`] and [`parse_unreachable`]
/// list.
fn parse_address(text: &str) -> Option<String> {
    // docker quotes the path of a socket as the host of a URL.
    let text = exec::tail(text.replace("%2F", "/").replace("http:///", "unix:///").as_bytes());
    let word = |start: &str| {
        let rest = &text[text.find(start)?..];
        let end = rest.find([' ', '\n', '"', '\'', ';', ',']).unwrap_or(rest.len());
        Some(rest[..end].trim_end_matches(['.', ':']).to_string())
    };
    let dialled = |network: &str, scheme: &str| {
        let (_, rest) = text.split_once(network)?;
        Some(format!("{scheme}{}", rest.split(": ").next()?))
    };
    let url = ["unix:///", "ssh://", "tcp://"].into_iter().find_map(word);
    let url = url.map(|url| match url.split_once(".sock/") {
        // The rest is the path of the request.
        Some((socket, _)) => format!("{socket}.sock"),
        None => url,
    });
    url.or_else(|| dialled("dial unix ", "unix://")).or_else(|| dialled("dial tcp ", "tcp://"))
}

/// Returns why an engine did not pull an image, and what helps if that is known. `registry` is where it looked:
///
/// - podman 4.3.1: ``pinging container registry registry-1.docker.io: Get "https://registry-1.docker.io/v2/": dial tcp: lookup
///   registry-1.docker.io on 10.0.0.1:53: no such host``
/// - docker 20.10: ``Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup …``, also
///   ``net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)``
/// - podman: ``reading manifest 9.99 in docker.io/library/python: manifest unknown``, ``… unauthorized: authentication required``,
///   ``requested access to the resource is denied``
/// - docker: ``manifest for python:9.99 not found: manifest unknown``, ``pull access denied for x, repository does not exist or
///   may require 'docker login'``
pub(crate) fn parse_pull_failure(text: &str, registry: &str) -> (String, Option<String>) {
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let network = [
        "dial tcp", "no such host", "i/o timeout", "connection refused", "network is unreachable",
        "Client.Timeout exceeded", "TLS handshake timeout", "connection reset by peer",
    ];
    // The engine's own troubles also end with "not found" and "denied": only a registry's answers are looked for.
    let names = |thing: &str| text.lines().any(|line| is_named_not_found(line, thing));
    if has(&["manifest unknown", "name unknown"]) || names("manifest for ") || names("repository ") {
        (format!("{registry} has no such image"), Some("check the name and the tag".into()))
    } else if has(&["unauthorized", "pull access denied", "requested access to the resource is denied"]) {
        let hint =
            format!("check the name; if it is right: `podman login {registry}` or `docker login {registry}`");
        (format!("{registry} wants a login, or has no such image"), Some(hint))
    } else if has(&network) {
        let hint = "check your connection, or use --image host:";
        (format!("{registry} is unreachable"), Some(hint.into()))
    } else {
        (exec::tail(text.as_bytes()), None)
    }
}

/// Recognises ``manifest for python:9.99 not found`` and ``repository x not found``: one word between the two.
fn is_named_not_found(line: &str, thing: &str) -> bool {
    line.match_indices(thing).any(|(at, _)| {
        let rest = &line[at + thing.len()..];
        rest.split_once(' ').is_some_and(|(_, rest)| rest.starts_with("not found"))
    })
}

/// Returns why ssh did not reach the engine. docker starts OpenSSH's client, podman has a client of its own:
///
/// - OpenSSH 9.2: ``Host key verification failed.``, before that a page of text when another key is known
/// - podman 4.3.1 and 5.8.6: ``ssh: handshake failed: knownhosts: key mismatch``; it accepts an unknown key by itself
/// - OpenSSH 9.2: ``root@127.0.0.1: Permission denied (publickey).``
/// - OpenSSH 9.2: ``Received disconnect from 127.0.0.1 port 22:2: Too many authentication failures``
/// - podman 4.3.1 and 5.8.6: ``ssh: handshake failed: ssh: unable to authenticate, attempted methods [none publickey], no
///   supported methods remain``, ``failed to read identity "/home/a/key": bcrypt_pbkdf: empty password`` with a passphrase
/// - docker 20.10: ``ssh host connection is not valid: plain-text password is not supported``; 28.2 with ``invalid SSH URL: ``
fn parse_ssh_refusal(text: &str) -> Option<Refusal> {
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let message = exec::tail(text.as_bytes());
    if has(&["Host key verification failed", "ssh: handshake failed: knownhosts: "]) {
        return Some(Refusal::HostKeyRefused { message });
    }
    let denied = ["publickey", "password", "keyboard-interactive", "gssapi", "hostbased"];
    if denied.iter().any(|method| text.contains(&format!(": Permission denied ({method}"))) {
        return Some(Refusal::LoginRefused { message });
    }
    let login = [
        "Too many authentication failures",
        "ssh: unable to authenticate",
        "failed to read identity ",
        "plain-text password is not supported",
    ];
    has(&login).then_some(Refusal::LoginRefused { message })
}

/// Returns the image that an engine does not have and cannot pull; see [`parse_refusal`].
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

/// Recognises that there is nothing to remove: ``Error: No such container: x`` (docker), ``no such container`` (podman).
pub(crate) fn parse_missing_container(stderr: &[u8]) -> Option<()> {
    let text = String::from_utf8_lossy(stderr).to_lowercase();
    text.contains("no such container").then_some(())
}

/// Returns the errors in docker's `info` in JSON: until version 23 the client ends with status 0 without a daemon, and this
/// is all that it says: ``{"ServerErrors":["Cannot connect …``
pub(crate) fn parse_server_errors(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Info {
        server_errors: Vec<String>,
    }
    let info: Info = serde_json::from_str(text).ok()?;
    let text = info.server_errors.join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

/// Returns the id and the environment of the first image of `image inspect`.
pub(crate) fn parse_image(stdout: &[u8]) -> Option<(String, Vec<String>)> {
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

/// Reads the `Config.Volumes` of an image: an object whose keys are folders, or null
/// (<https://github.com/opencontainers/image-spec/blob/main/config.md#properties>).
pub(crate) fn parse_volumes(stdout: &[u8]) -> Vec<String> {
    let volumes: Option<BTreeMap<String, IgnoredAny>> = serde_json::from_slice(stdout).unwrap_or_default();
    volumes.unwrap_or_default().into_keys().collect()
}

/// Recognises that podman does not reach its engine, as it does not without a machine, or with a machine that is stopped:
///
/// - 3.2.3 (podman issue 11306): ``Error: cannot connect to the Podman socket, please verify that Podman REST API service is
///   running: Get "http://d/v3.2.3/libpod/_ping": …``
/// - 3.3.1 (podman issue 11706): ``Error: failed to create sshClient: Connection to bastion host (ssh://…) failed.: dial tcp: …``
/// - 4.1.0 (microshift-plus issue 2): ``Error: unable to connect to Podman. failed to create sshClient: connection to bastion
///   host (ssh://core@localhost:56102/run/user/1000/podman/podman.sock) failed: dial tcp 127.0.0.1:56102: connect: connection
///   refused`` after ``Cannot connect to Podman. Please verify your connection to the Linux system using …``
/// - 4.3.1, captured: ``Error: unable to connect to Podman socket: Get "http://d/v4.3.1/libpod/_ping": dial unix …: connect:
///   no such file or directory`` after the same; over ssh ``Error: failed to connect: dial tcp 127.0.0.1:1: connect: connection
///   refused`` alone, which 4.5.0 says too (podman issue 18786)
/// - 5.8.6, captured: ``Error: unable to connect to Podman socket: failed to connect: dial tcp 127.0.0.1:1: connect: connection
///   refused: ssh://core@127.0.0.1:1/run/podman.sock``
pub(crate) fn parse_unreachable(text: &str) -> Option<()> {
    let words = [
        "Cannot connect to Podman",
        "cannot connect to the Podman socket",
        "unable to connect to Podman",
        "failed to create sshClient",
        "Error: failed to connect: ",
    ];
    words.iter().any(|words| text.contains(words)).then_some(())
}

/// Reads `container inspect` of either engine; containers of others and malformed entries are skipped.
pub(crate) fn parse_containers(stdout: &[u8]) -> Vec<OwnedSandbox> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Container {
        name: String,
        config: Config,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    let containers: Vec<Container> = serde_json::from_slice(stdout).unwrap_or_default();
    containers
        .into_iter()
        .filter_map(|container| {
            Some(OwnedSandbox {
                // docker writes names with a leading slash.
                name: SandboxName::try_from(container.name.trim_start_matches('/').to_string()).ok()?,
                owner: Owner::from_labels(&container.config.labels?)?,
            })
        })
        .collect()
}

/// The label by which the volumes of a sandbox are found.
pub(crate) const SANDBOX_LABEL: &str = "codebridge.sandbox";

/// Reads the sandboxes of volumes from `volume inspect` of either engine.
pub(crate) fn parse_volume_owners(stdout: &[u8]) -> Vec<OwnedSandbox> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Volume {
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    let volumes: Vec<Volume> = serde_json::from_slice(stdout).unwrap_or_default();
    let owned = volumes.into_iter().filter_map(|volume| {
        let labels = volume.labels?;
        let name = SandboxName::try_from(labels.get(SANDBOX_LABEL)?.clone()).ok()?;
        Some(OwnedSandbox { name, owner: Owner::from_labels(&labels)? })
    });
    let mut owned: Vec<_> = owned.collect();
    owned.dedup();
    owned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::tests::podman_text as fixture;

    #[test]
    fn volumes_name_their_sandbox_and_its_owner() {
        let owner = Owner::this_process("abc".into());
        let mut labels = owner.labels();
        let volumes = |labels: &BTreeMap<String, String>| {
            serde_json::to_vec(
                &serde_json::json!([{ "Name": "x", "Labels": labels }, { "Name": "y", "Labels": null }]),
            )
            .unwrap()
        };
        assert_eq!(parse_volume_owners(&volumes(&labels)), []);
        labels.insert(SANDBOX_LABEL.into(), "codebridge-abc-1".into());
        let name = SandboxName::try_from("codebridge-abc-1".to_string()).unwrap();
        assert_eq!(parse_volume_owners(&volumes(&labels)), [OwnedSandbox { name, owner }]);
    }

    #[test]
    fn volumes_are_keys() {
        assert_eq!(parse_volumes(b"{\"/data\":{},\"/a b\":{}}\n"), ["/a b", "/data"]);
        assert_eq!(parse_volumes(b"null\n"), [""; 0]);
    }

    #[test]
    fn captured_messages_are_understood() {
        let daemon = "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?";
        assert!(matches!(parse_refusal(daemon), Some(Refusal::DaemonUnreachable { .. })));
        let newer = "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct";
        assert!(matches!(parse_refusal(newer), Some(Refusal::DaemonUnreachable { .. })));
        assert_eq!(parse_server_errors(daemon), None);
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
    fn an_engine_that_does_not_answer_has_an_address() {
        for (text, address) in [
            (
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                "unix:///var/run/docker.sock",
            ),
            ("failed to connect to the docker API at unix:///a b.sock; check", "unix:///a"),
            (
                "error during connect: Get \"http://%2Fx%2Fdocker.sock/v1.24/info\": EOF",
                "unix:///x/docker.sock",
            ),
            (
                "Cannot connect to the Docker daemon at tcp://10.0.0.1:2375. Is the docker",
                "tcp://10.0.0.1:2375",
            ),
            (
                "unable to connect to Podman socket: Get \"http://d/v4.3.1/libpod/_ping\": dial unix /run/p.sock: connect: no such file",
                "unix:///run/p.sock",
            ),
            (
                "Error: failed to connect: dial tcp 127.0.0.1:1: connect: connection refused",
                "tcp://127.0.0.1:1",
            ),
        ] {
            assert_eq!(parse_address(text).as_deref(), Some(address), "{text}");
        }
        assert_eq!(parse_address("no address"), None);
    }

    #[test]
    fn a_pull_that_fails_says_why() {
        let why = |text| parse_pull_failure(text, "docker.io").0;
        for text in [
            "Error: initializing source docker://nosuch:tag: pinging container registry registry-1.docker.io: Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such host",
            "Error response from daemon: Get \"https://registry-1.docker.io/v2/\": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)",
        ] {
            assert_eq!(why(text), "docker.io is unreachable", "{text}");
        }
        assert_eq!(
            why("manifest for python:9.99 not found: manifest unknown"),
            "docker.io has no such image"
        );
        assert_eq!(
            why("Error: reading manifest 9 in docker.io/library/python: manifest unknown"),
            "docker.io has no such image"
        );
        let denied = "pull access denied for x, repository does not exist or may require 'docker login'";
        assert!(why(denied).starts_with("docker.io wants a login"));
        for text in [
            "Error response from daemon: manifest for python:9.99 not found",
            "Error response from daemon: repository nosuch/x not found: does not exist or no pull access",
        ] {
            assert_eq!(why(text), "docker.io has no such image", "{text}");
        }
        for text in [
            "no space left on device",
            "error getting credentials - err: exec: \"docker-credential-desktop\": executable file not found in $PATH, out: ``",
            "Error: mkdir /run/user/0/libpod: permission denied",
            "Error: creating image storage: repository of layers: permission denied, file not found",
        ] {
            assert_eq!(parse_pull_failure(text, "docker.io"), (text.to_owned(), None));
        }
    }

    #[test]
    fn refusals_of_ssh_are_understood() {
        let command = "error during connect: Get \"http://docker.example.com/v1.24/info\": command [ssh -l root -p 4822 -- 127.0.0.1 docker system dial-stdio] has exited with exit status 255, please make sure the URL is valid, and Docker 18.09 or later is installed on the remote host: stderr=";
        let docker = |words: &str| parse_refusal(&format!("{command}{words}\r\n"));
        let podman = |words: &str| parse_refusal(&format!("Error: {words}"));
        for refusal in [
            docker("Host key verification failed."),
            podman("failed to connect: ssh: handshake failed: knownhosts: key mismatch"),
        ] {
            assert!(matches!(refusal, Some(Refusal::HostKeyRefused { .. })), "{refusal:?}");
        }
        for refusal in [
            docker("root@127.0.0.1: Permission denied (publickey)."),
            podman(
                "failed to connect: ssh: handshake failed: ssh: unable to authenticate, attempted methods [none publickey], no supported methods remain",
            ),
            podman("failed to read identity \"/home/a/key\": bcrypt_pbkdf: empty password"),
            parse_refusal(
                "Failed to initialize: ssh host connection is not valid: invalid SSH URL: plain-text password is not supported",
            ),
        ] {
            assert!(matches!(refusal, Some(Refusal::LoginRefused { .. })), "{refusal:?}");
        }
        for refusal in [
            docker("ssh: connect to host 127.0.0.1 port 4823: Connection refused"),
            docker("ssh: Could not resolve hostname nohost.invalid: Name or service not known"),
            podman(
                "unable to connect to Podman socket: Get \"http://d/v4.3.1/libpod/_ping\": ssh: rejected: connect failed (open failed)",
            ),
        ] {
            assert!(matches!(refusal, Some(Refusal::DaemonUnreachable { .. })), "{refusal:?}");
        }
    }

    #[test]
    fn errors_of_docker_info_are_read_from_its_json() {
        let said = r#"{"ID":"","ServerErrors":["error during connect: x\r\n"],"ClientInfo":{}}"#;
        assert_eq!(parse_server_errors(said).as_deref(), Some("error during connect: x"));
        assert_eq!(parse_server_errors(r#"{"ID":"X","ServerErrors":[]}"#), None);
        assert_eq!(parse_server_errors("error during connect: x"), None);
    }

    #[test]
    fn each_version_of_podman_without_its_engine_is_understood() {
        for name in [
            "unreachable 3.2", "unreachable 3.3", "unreachable 3.4", "unreachable 3.4 agent",
            "unreachable 4.1", "unreachable 4.3", "unreachable 4.3 ssh", "unreachable 4.9",
            "unreachable 5.2", "unreachable 5.4", "unreachable 5.8",
        ] {
            assert_eq!(parse_unreachable(&fixture(name)), Some(()), "{name}");
        }
        for text in [
            "Error: no such container",
            "Error: unknown flag: --volume",
            "OCI runtime error: connection refused",
        ] {
            assert_eq!(parse_unreachable(text), None, "{text}");
        }
    }

    #[test]
    fn containers_of_others_are_skipped() {
        let owner = Owner::this_process("a1".into());
        let labels = serde_json::to_string(&owner.labels()).unwrap();
        let text = format!(
            r#"[{{"Name":"/codebridge-a1-1","Config":{{"Labels":{labels}}},"State":{{"Status":"running"}}}},
                {{"Name":"web","Config":{{"Labels":null}},"State":{{"Status":"running"}}}},
                {{"Name":"codebridge-x","Config":{{"Labels":{{"codebridge.instance":"x"}}}},"State":{{"Status":"exited"}}}}]"#
        );
        let found = parse_containers(text.as_bytes());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), &found[0].owner), ("codebridge-a1-1", &owner));
        assert!(parse_containers(b"not json").is_empty());
    }
}
