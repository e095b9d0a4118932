//! The service that runs docker's engine, as its socket shows: the products that run it in a virtual machine on a laptop, and
//! docker's own services. Each has its own command to start, and its own way to share folders.

use std::fs;
use std::path::Path;

use crate::exec;
use crate::refusal::Product;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DockerService {
    /// <https://docs.docker.com/desktop/>; on Linux its socket is in another folder.
    DockerDesktop { linux: bool },
    /// <https://github.com/abiosoft/colima/blob/main/docs/FAQ.md>: a machine for each profile.
    Colima { profile: Option<String> },
    /// <https://docs.orbstack.dev/headless>
    OrbStack,
    /// <https://docs.rancherdesktop.io/references/rdctl-command-reference>
    RancherDesktop,
    /// <https://docs.docker.com/engine/security/rootless/>
    Rootless,
    /// The daemon of this machine.
    Daemon,
}

/// The sockets that the client uses by default.
const USUAL: [&str; 2] = ["/var/run/docker.sock", "/run/docker.sock"];
/// The folder in the home folder that each product makes.
const HOMES: [(&str, DockerService); 4] = [
    (".colima", DockerService::Colima { profile: None }),
    (".orbstack", DockerService::OrbStack),
    (".rd", DockerService::RancherDesktop),
    (".docker/run", DockerService::DockerDesktop { linux: false }),
];

impl DockerService {
    fn of_socket(path: &str) -> Option<Self> {
        let has = |part: &str| path.contains(part);
        let runtime_dir = std::env::var("XDG_RUNTIME_DIR").unwrap_or_default();
        let in_runtime_dir = Path::new(path).parent() == Some(Path::new(&runtime_dir));
        Some(match path {
            // Also in `$COLIMA_HOME` and `~/.config/colima`.
            _ if has("/.colima/") || has("/colima/") => Self::Colima { profile: profile_of(path) },
            _ if has("/.orbstack/") => Self::OrbStack,
            _ if has("/.rd/") => Self::RancherDesktop,
            _ if has("/.docker/desktop/") => Self::DockerDesktop { linux: true },
            _ if has("/.docker/run/") || has("/com.docker.docker/") => Self::DockerDesktop { linux: false },
            _ if path.starts_with("/run/user/") || in_runtime_dir => Self::Rootless,
            _ => return None,
        })
    }

    /// Returns the service by what an engine reports: its operating system and the name of its machine.
    fn of_engine(system: &str, name: &str) -> Option<Self> {
        let profile = name.strip_prefix("colima-").map(String::from);
        Some(match name {
            _ if system == "OrbStack" => Self::OrbStack,
            _ if system.contains("Docker Desktop") => Self::DockerDesktop { linux: false },
            "lima-rancher-desktop" => Self::RancherDesktop,
            _ if name == "colima" || profile.is_some() => Self::Colima { profile },
            _ => return None,
        })
    }

    /// Returns the service of an engine that answers.
    pub(crate) fn of(endpoint: &str, system: &str, name: &str) -> Option<Self> {
        Self::of_socket(endpoint).or_else(|| Self::of_engine(system, name))
    }

    /// Returns the service behind a socket that does not answer.
    fn behind(socket: &str, home: &Path, has_daemon: bool) -> Option<Self> {
        if let Some(known) = Self::of_socket(socket) {
            return Some(known);
        }
        // Products replace the default socket by a link to their own, which stays when they stop.
        let target = fs::read_link(socket).ok();
        if let Some(known) = target.and_then(|path| Self::of_socket(path.to_str()?)) {
            return Some(known);
        }
        if !USUAL.contains(&socket) {
            return None;
        }
        if has_daemon {
            return Some(Self::Daemon);
        }
        let mut installed = HOMES.into_iter().filter(|(folder, _)| home.join(folder).is_dir());
        let (only, another) = (installed.next(), installed.next());
        only.filter(|_| another.is_none()).map(|(_, service)| service)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::DockerDesktop { .. } => "Docker Desktop",
            Self::Colima { .. } => "colima",
            Self::OrbStack => "OrbStack",
            Self::RancherDesktop => "Rancher Desktop",
            Self::Rootless => "rootless docker",
            Self::Daemon => "docker",
        }
    }

    fn start(&self) -> String {
        match self {
            Self::DockerDesktop { linux: false } => "open -a Docker".into(),
            Self::DockerDesktop { linux: true } => "systemctl --user start docker-desktop".into(),
            Self::Colima { profile } => with_profile("colima start", profile.as_deref()),
            Self::OrbStack => "orb start".into(),
            Self::RancherDesktop => "rdctl start".into(),
            Self::Rootless => "systemctl --user start docker".into(),
            Self::Daemon => "systemctl start docker".into(),
        }
    }

    /// Returns how to share a folder, which is quoted for a shell; None where nothing can be shared.
    pub(crate) fn sharing(&self, folder: &str) -> Option<String> {
        Some(match self {
            Self::DockerDesktop { .. } => {
                format!("add {folder} in Docker Desktop: Settings, Resources, File sharing")
            }
            Self::Colima { profile } => {
                // The home folder is shared only as long as no other folder is named.
                let (stop, start) = (
                    with_profile("colima stop", profile.as_deref()),
                    with_profile("colima start", profile.as_deref()),
                );
                format!("`{stop}` and `{start} --mount \"$HOME\":w --mount {folder}:w`")
            }
            Self::OrbStack => {
                format!("OrbStack shares the whole disk: check whether {folder} is a link to another disk")
            }
            Self::RancherDesktop => format!(
                "add {folder} to `mounts` in Rancher Desktop's lima/_config/override.yaml (macOS: in ~/Library/Application \
                 Support/rancher-desktop), then `rdctl shutdown` and `rdctl start`"
            ),
            Self::Rootless | Self::Daemon => return None,
        })
    }
}

/// Returns the profile of a colima socket, `~/.colima/PROFILE/docker.sock`; None for the default profile.
fn profile_of(path: &str) -> Option<String> {
    let folder = Path::new(path).parent()?.file_name()?.to_str()?;
    (!matches!(folder, "default" | ".colima" | "colima")).then(|| folder.to_string())
}

fn with_profile(command: &str, profile: Option<&str>) -> String {
    let profile = profile.and_then(|profile| shlex::try_quote(profile).ok());
    profile.map_or_else(|| command.into(), |profile| format!("{command} {profile}"))
}

/// Returns the local socket that did not answer docker's client:
///
/// - 20.10 to 28: ``Cannot connect to the Docker daemon at unix:///PATH. Is the docker daemon running?``
/// - 29: ``failed to connect to the docker API at unix:///PATH; check if the path is correct …``
/// - any: ``error during connect: Get "http://%2FPATH/v1.24/info": EOF``
///
/// None for a socket that this user may not use: starting something does not help.
fn parse_dead_socket(text: &str) -> Option<String> {
    if text.contains("permission denied") {
        return None;
    }
    let text = text.replace("%2F", "/").replace("http:///", "unix:///");
    let rest = &text[text.find("unix:///")? + "unix://".len()..];
    let end = rest.find(".sock")? + ".sock".len();
    let path = &rest[..end];
    (!path.contains(['\n', '"', '\''])).then(|| path.to_string())
}

/// Returns what has to be started, from the messages of a client that got no answer.
pub(super) fn find_stopped(text: &str) -> Option<Product> {
    let socket = parse_dead_socket(text)?;
    let home = std::env::var_os("HOME").unwrap_or_default();
    let has_daemon = exec::find_program(Path::new("dockerd")).is_some();
    let service = DockerService::behind(&socket, Path::new(&home), has_daemon)?;
    Some(Product { name: service.name().into(), start: service.start() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> String {
        let text = include_str!("desktops.txt");
        let body = text.split(&format!("== {name}\n")).nth(1).unwrap_or_else(|| panic!("no {name}"));
        let body = body.split("\n== ").next().unwrap();
        body.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }

    /// The socket of the context that is the current one in a list of contexts.
    fn current_socket(name: &str) -> String {
        let text = fixture(&format!("contexts {name}"));
        let line = text.lines().find(|line| line.contains(" * ")).unwrap();
        line.split_whitespace().find_map(|word| word.strip_prefix("unix://")).unwrap().to_string()
    }

    fn field(name: &str, key: &str) -> String {
        let text = fixture(&format!("info {name}"));
        text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_string()
    }

    #[test]
    fn each_product_is_known_by_its_socket_and_by_its_own_report() {
        for (name, said, start) in [
            ("docker-desktop", "Docker Desktop", "open -a Docker"),
            ("colima", "colima", "colima start"),
            ("colima-profile", "colima", "colima start work"),
            ("orbstack", "OrbStack", "orb start"),
            ("rancher-desktop", "Rancher Desktop", "rdctl start"),
        ] {
            let by_socket = DockerService::of_socket(&current_socket(name)).unwrap();
            assert_eq!((by_socket.name(), by_socket.start().as_str()), (said, start));
            let (system, machine) = (field(name, "Operating System:"), field(name, "Name:"));
            assert_eq!(DockerService::of("unix:///var/run/docker.sock", &system, &machine), Some(by_socket));
        }
        assert_eq!(DockerService::of("tcp://10.0.0.7:2376", "Debian GNU/Linux 12 (bookworm)", "farm"), None);
    }

    #[test]
    fn the_messages_of_a_client_show_what_has_to_be_started() {
        let stopped = |name| find_stopped(&fixture(name)).map(|product| (product.name, product.start));
        for (name, product, start) in [
            ("unreachable 20.10", "colima", "colima start"),
            ("unreachable info 20.10", "Rancher Desktop", "rdctl start"),
            ("unreachable 28", "OrbStack", "orb start"),
            ("unreachable 29", "OrbStack", "orb start"),
            ("half up", "OrbStack", "orb start"),
        ] {
            assert_eq!(stopped(name), Some((product.into(), start.into())), "{name}");
        }
        assert_eq!(stopped("unknown context 28"), None);
        let text =
            "Cannot connect to the Docker daemon at tcp://10.0.0.7:2376. Is the docker daemon running?";
        assert_eq!(find_stopped(text), None);
        let text = "permission denied while trying to connect to the Docker daemon socket at unix:///run/user/7/docker.sock";
        assert_eq!(find_stopped(text), None);
        let text = "Cannot connect to the Docker daemon at unix:///run/user/7/docker.sock. Is the docker daemon running?";
        assert_eq!(find_stopped(text).unwrap().start, "systemctl --user start docker");
    }

    #[test]
    fn a_socket_that_is_a_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("docker.sock");
        let behind = || DockerService::behind(link.to_str().unwrap(), dir.path(), true);
        assert_eq!(behind(), None);
        std::os::unix::fs::symlink("/Users/ann/.rd/docker.sock", &link).unwrap();
        assert_eq!(behind(), Some(DockerService::RancherDesktop));
    }

    #[test]
    fn the_default_socket_belongs_to_the_installed_product() {
        // One that is not a link on this machine.
        let Some(usual) = USUAL.into_iter().find(|path| fs::read_link(path).is_err()) else { return };
        let home = tempfile::tempdir().unwrap();
        let behind = |has_daemon| DockerService::behind(usual, home.path(), has_daemon);
        assert_eq!((behind(false), behind(true)), (None, Some(DockerService::Daemon)));
        fs::create_dir(home.path().join(".colima")).unwrap();
        assert_eq!(behind(false), Some(DockerService::Colima { profile: None }));
        fs::create_dir(home.path().join(".orbstack")).unwrap();
        assert_eq!(behind(false), None, "it may be either product");
    }

    #[test]
    fn each_product_has_its_own_way_to_share() {
        for (name, expected) in [
            ("docker-desktop", "Docker Desktop: Settings, Resources, File sharing"),
            ("colima", "`colima stop` and `colima start --mount \"$HOME\":w --mount '/a b':w`"),
            (
                "colima-profile",
                "`colima stop work` and `colima start work --mount \"$HOME\":w --mount '/a b':w`",
            ),
            ("orbstack", "OrbStack shares the whole disk"),
            ("rancher-desktop", "add '/a b' to `mounts` in Rancher Desktop's lima/_config/override.yaml"),
        ] {
            let hint = DockerService::of_socket(&current_socket(name)).unwrap().sharing("'/a b'").unwrap();
            assert!(hint.contains(expected), "{name}: {hint}");
        }
    }
}
