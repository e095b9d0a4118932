//! What differs between the engines' command lines, as facts.

use crate::runtime::RuntimeKind;
use crate::spec::SandboxSpec;

use super::info::{EngineInfo, parse_docker_info, parse_podman_info};

/// Variables that may hold credentials of a proxy.
const PROXIES: &[&str] = &[
    "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "ALL_PROXY",
    "all_proxy", "NO_PROXY", "no_proxy",
];

#[derive(Debug)]
pub(super) struct Dialect {
    /// The command that prints the address of an engine, when the connection is added as its last argument.
    pub(super) tells_endpoint: Option<&'static [&'static str]>,
    /// The flag that selects one of the engines that the client is set up for.
    pub(super) selects_engine: &'static str,
    /// Whether its client starts the sandbox itself, and not a daemon, which has mounts and ids of its own.
    pub(super) starts_as_child: bool,
    /// `run --rootfs DIR`: <https://docs.podman.io/en/latest/markdown/podman-run.1.html#rootfs>.
    pub(super) starts_folders: bool,
    /// Whether a tmpfs can have an owner and a number of files; podman knows neither option.
    pub(super) owns_tmpfs: bool,
    /// Whether it makes the volumes of an image, unless something else is mounted there.
    pub(super) makes_volumes: bool,
    /// Whether `/dev/shm` has to be requested: podman 5 makes it read-only together with the other places that
    /// `--read-only-tmpfs=false` removes.
    pub(super) asks_for_shm: bool,
    /// `--security-opt=mask=PATH`: <https://docs.podman.io/en/latest/markdown/podman-run.1.html#security-opt-option>.
    pub(super) masks_paths: bool,
    /// Whether the client reads the seccomp profile and sends its content; otherwise the engine reads it from its own disk.
    pub(super) sends_profile: bool,
    /// Whether what it starts for a container writes into the working directory: conmon leaves a file `oom` there
    /// (<https://github.com/containers/conmon/blob/main/src/oom.c>).
    pub(super) writes_to_working_directory: bool,
    /// Flags that keep the user's configuration out of the sandbox, or avoid needless work.
    hermetic_flags: &'static [&'static str],
    /// More such flags, which the client of a remote engine does not have.
    local_flags: &'static [&'static str],
    /// Whether proxy variables have to be set to nothing, with a local and with a remote engine, because the client or
    /// the engine would fill them from its configuration.
    empties_proxies: (bool, bool),
    /// Further options of a `--volume`.
    pub(super) bind_options: &'static str,
    /// Files of `/etc` over which it mounts its own, whatever the root is.
    pub(super) mounts_in_etc: &'static [&'static str],
    /// The command that kills and removes a container if there is one.
    pub(super) remove: &'static [&'static str],
    /// Reads `info --format '{{json .}}'`.
    pub(super) parse_info: fn(&[u8]) -> Option<EngineInfo>,
}

static PODMAN: Dialect = Dialect {
    // `info` says whether the engine is remote.
    tells_endpoint: None,
    selects_engine: "--connection",
    starts_as_child: true,
    starts_folders: true,
    owns_tmpfs: false,
    makes_volumes: false,
    asks_for_shm: true,
    masks_paths: true,
    sends_profile: false,
    writes_to_working_directory: true,
    hermetic_flags: &[
        // No tmpfs on /run and /var/tmp: the writable places are listed.
        "--read-only-tmpfs=false",
        // Output goes to us alone; a copy in a log would grow without bound.
        "--log-driver=none", "--no-healthcheck", "--no-hosts", "--stop-signal=KILL", "--systemd=false",
        // A volume would be a writable folder on the host's disk.
        "--image-volume=ignore",
    ],
    local_flags: &[
        // Proxy variables may hold credentials: https://docs.podman.io/en/latest/markdown/podman-run.1.html#http-proxy
        // A remote 4.3.1 knows neither flag, 5.8 the first.
        "--http-proxy=false", "--env-host=false",
    ],
    empties_proxies: (false, true),
    bind_options: ",nosuid,nodev,rbind",
    mounts_in_etc: &[],
    remove: &["rm", "--force", "--ignore", "--time=0", "--volumes"],
    parse_info: parse_podman_info,
};

static DOCKER: Dialect = Dialect {
    tells_endpoint: Some(&["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]),
    selects_engine: "--context",
    starts_as_child: false,
    starts_folders: false,
    owns_tmpfs: true,
    makes_volumes: true,
    asks_for_shm: false,
    masks_paths: false,
    sends_profile: true,
    writes_to_working_directory: false,
    hermetic_flags: &[
        "--log-driver=none", "--no-healthcheck", "--stop-signal=KILL",
        // The host's name servers and domains are copied even into a sandbox without network, unless others are given:
        // an address that nobody has (https://www.rfc-editor.org/rfc/rfc5737) and no domain.
        "--dns=192.0.2.1", "--dns-search=.",
    ],
    local_flags: &[],
    // https://docs.docker.com/engine/cli/proxy/: taken from ~/.docker/config.json unless they are given.
    empties_proxies: (true, true),
    bind_options: "",
    mounts_in_etc: &["hosts", "hostname", "resolv.conf"],
    remove: &["rm", "--force", "--volumes"],
    parse_info: parse_docker_info,
};

impl Dialect {
    pub(super) fn of(kind: RuntimeKind) -> &'static Self {
        match kind {
            RuntimeKind::Docker => &DOCKER,
            _ => &PODMAN,
        }
    }

    /// Returns the flags that keep configuration out.
    pub(super) fn flags(&self, remote: bool) -> impl Iterator<Item = &'static str> {
        let local = if remote { &[] } else { self.local_flags };
        local.iter().chain(self.hermetic_flags).copied()
    }

    /// Returns the variables of the sandbox that the engine is told.
    pub(super) fn environment<'a>(
        &self,
        spec: &'a SandboxSpec,
        remote: bool,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let empties = if remote { self.empties_proxies.1 } else { self.empties_proxies.0 };
        let emptied = PROXIES.iter().filter(move |_| empties).map(|&name| (name, ""));
        emptied.chain(spec.env.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }
}
