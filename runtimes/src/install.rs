//! How to install a runtime on this machine.

use crate::runtime::RuntimeKind;

/// Package managers of distributions, by an `ID` or `ID_LIKE` of os-release(5), and their package of docker. The packages of the
/// other runtimes have the same name everywhere.
const MANAGERS: [(&[&str], &str, &str); 5] = [
    (&["debian", "ubuntu"], "apt-get install", "docker.io"),
    (&["fedora", "rhel", "centos"], "dnf install", "moby-engine"),
    (&["alpine"], "apk add", "docker"),
    (&["arch"], "pacman -S", "docker"),
    (&["suse", "opensuse"], "zypper install", "docker"),
];

/// Returns the command that installs a runtime here.
pub(crate) fn how_to_install(kind: RuntimeKind) -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let release = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
    command(kind, release.as_deref().unwrap_or_default(), std::env::consts::OS)
}

fn command(kind: RuntimeKind, release: &str, system: &str) -> String {
    if system == "macos" {
        return match kind {
            RuntimeKind::Kubernetes => "brew install kubectl".into(),
            RuntimeKind::Docker => "brew install --cask docker".into(),
            // The others run on Linux only.
            _ => "brew install podman, then podman machine init".into(),
        };
    }
    let ids = parse_ids(release);
    let known = MANAGERS.iter().find(|(names, ..)| ids.iter().any(|id| names.contains(&id.as_str())));
    let Some((_, install, docker)) = known else {
        return format!("install {kind} with the package manager of this system");
    };
    if kind == RuntimeKind::Kubernetes {
        return "install kubectl: https://kubernetes.io/docs/tasks/tools/".into();
    }
    format!("{install} {}", if kind == RuntimeKind::Docker { docker } else { kind.program_name() })
}

/// Returns `ID` and then the words of `ID_LIKE`, unquoted.
fn parse_ids(release: &str) -> Vec<String> {
    let field = |name: &str| {
        let line = release.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
        Some(line.trim_matches(['"', '\'']).to_lowercase())
    };
    let fields = [field("ID"), field("ID_LIKE")];
    fields
        .into_iter()
        .flatten()
        .flat_map(|text| text.split(' ').map(String::from).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_has_its_own_command() {
        let on = |release| command(RuntimeKind::Podman, release, "linux");
        assert_eq!(on("PRETTY_NAME=\"Debian 12\"\nID=debian\n"), "apt-get install podman");
        assert_eq!(on("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), "apt-get install podman");
        assert_eq!(on("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), "dnf install podman");
        assert_eq!(on("ID=alpine\n"), "apk add podman");
        assert_eq!(on("ID=arch\n"), "pacman -S podman");
        assert_eq!(on("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n"), "zypper install podman");
        assert_eq!(on("ID=nixos\n"), "install podman with the package manager of this system");
        assert_eq!(command(RuntimeKind::Docker, "ID=debian", "linux"), "apt-get install docker.io");
        assert!(command(RuntimeKind::Crun, "", "macos").starts_with("brew install podman"));
    }
}
