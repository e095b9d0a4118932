//! Why a runtime cannot be used: typed, for error messages, for `doctor`, and for the choice of the next runtime.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The program or service that has to be started when an engine does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    pub name: String,
    /// The command that starts it.
    pub start: String,
}

/// What is wrong with the folder of a root filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootProblem {
    /// The folder, or one above it, cannot be read by the sandbox's user.
    #[default]
    Unreadable,
    /// There is no such folder.
    Missing,
    /// The folder contains no system.
    NotARoot,
}

/// The reason why a runtime did not run a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Refusal {
    /// The program is not in `PATH`.
    NotInstalled,
    /// The program cannot be executed.
    NotExecutable {
        message: String,
    },
    /// The engine does not answer.
    DaemonUnreachable {
        message: String,
        /// What has to be started, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        product: Option<Product>,
        /// Whether this user has no permission to use the engine's socket.
        #[serde(default)]
        denied: bool,
    },
    /// ssh has no host key, or another one, for the engine's machine.
    HostKeyRefused {
        message: String,
    },
    /// The engine's machine accepts none of the ssh keys that work without a passphrase prompt.
    LoginRefused {
        message: String,
    },
    /// The host has cgroup v1 controllers and a cgroup2 mount: crun refuses such hosts, and so does podman with crun.
    HybridCgroups,
    /// The kernel or its settings forbid user namespaces to this user.
    NoUserNamespaces {
        message: String,
    },
    /// The user has no range in `/etc/subuid`, or `newuidmap` is missing.
    NoSubuids {
        message: String,
    },
    /// A limit on open files or processes cannot be set.
    RlimitDenied {
        message: String,
    },
    /// The container that this process is in does not allow what a sandbox needs.
    Confined {
        message: String,
    },
    /// A control group, or a limit in it, cannot be set.
    CgroupDenied {
        message: String,
    },
    /// No source has the image.
    ImageMissing {
        image: String,
        message: String,
    },
    /// The root filesystem has no such program.
    ProgramMissing {
        message: String,
    },
    /// The folder of the root filesystem cannot be used.
    RootUnreachable {
        message: String,
        /// What is wrong with the folder.
        #[serde(default)]
        problem: RootProblem,
    },
    /// The root filesystem is on this machine and the engine is on another.
    RootElsewhere {
        message: String,
    },
    /// Podman needs a machine here, and there is none.
    MachineMissing {
        message: String,
    },
    /// Podman's machine does not start.
    MachineFailed {
        message: String,
    },
    /// The client has no engine of this name.
    UnknownConnection {
        message: String,
    },
    /// The sandbox or the engine did not start in time.
    TimedOut {
        message: String,
    },
    /// The bridge was stopped during the attempt.
    Stopped,
    Other {
        message: String,
    },
}

impl Refusal {
    /// Returns whether the image is the problem, not the runtime.
    pub fn is_image(&self) -> bool {
        matches!(
            self,
            Self::ImageMissing { .. }
                | Self::ProgramMissing { .. }
                | Self::RootUnreachable { .. }
                | Self::RootElsewhere { .. }
        )
    }

    /// Returns whether this is more specific than another refusal of the same runtime.
    pub(crate) fn says_more_than(&self, other: &Self) -> bool {
        let weight = |refusal: &Self| match refusal {
            Self::Other { .. } => 0,
            Self::CgroupDenied { .. } => 1,
            _ => 2,
        };
        weight(self) > weight(other)
    }

    /// Returns whether the engine may have been available a moment ago. A remote engine that is gone may just not answer.
    pub(crate) fn is_absence(&self, remote: bool) -> bool {
        self.is_out_of_reach() || (remote && matches!(self, Self::TimedOut { .. }))
    }

    /// Returns whether the engine is unreachable for a reason that its user can fix.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        matches!(
            self,
            Self::DaemonUnreachable { .. } | Self::HostKeyRefused { .. } | Self::LoginRefused { .. }
        )
    }

    /// Returns what to do about it: a command or one sentence.
    pub fn hint(&self) -> Cow<'static, str> {
        if let Self::DaemonUnreachable { product: Some(Product { name, start }), .. } = self {
            return format!("start {name}: `{start}`").into();
        }
        let hint = match self {
            Self::NotInstalled => {
                "install a runtime with your package manager, for example `apt-get install podman`, `crun`, `runc` or `docker.io`"
            }
            Self::NotExecutable { .. } => "check the file's permissions and its architecture",
            Self::DaemonUnreachable { denied: true, .. } => {
                "`usermod --append --groups docker $USER`, then log in again (members of that group are as powerful as root); or use another runtime"
            }
            Self::DaemonUnreachable { .. } => {
                "start the engine, and check that the machine that CONTAINER_HOST, DOCKER_HOST, the connection or the context names is up"
            }
            Self::HostKeyRefused { .. } => {
                "ask the owner of the host for its key, compare, then accept it with `ssh USER@HOST`; if another key is stored, `ssh-keygen -R HOST` first"
            }
            Self::LoginRefused { .. } => {
                "`ssh -o BatchMode=yes USER@HOST` has to work: use a key without a passphrase, or one that ssh-agent holds (SSH_AUTH_SOCK); podman takes the key from `system connection add --identity` or CONTAINER_SSHKEY"
            }
            Self::HybridCgroups => {
                "install runc, which works here, or boot with systemd.unified_cgroup_hierarchy=1"
            }
            Self::NoUserNamespaces { .. } => {
                "allow them: `sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`; in a container `--security-opt=seccomp=unconfined`"
            }
            Self::NoSubuids { .. } => {
                "`apt-get install uidmap` and `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER`"
            }
            Self::RlimitDenied { .. } => {
                "raise the hard limit (`ulimit -H -n`) of the process that starts codebridge"
            }
            Self::Confined { .. } => {
                "start the container with `--security-opt=seccomp=unconfined` and `--security-opt=unmask=ALL` (podman) or `--security-opt=systempaths=unconfined` (docker), or mount an engine's socket into it"
            }
            Self::CgroupDenied { .. } => "delegate the memory and pids controllers to this user",
            Self::ImageMissing { .. } => {
                "check the name, or use `--image oci-archive:FILE`, `--image dir:PATH` or `--image host:`"
            }
            Self::ProgramMissing { .. } => "use an image that has CPython 3.9 or newer as `python3`",
            Self::RootUnreachable { problem: RootProblem::NotARoot, .. } => {
                "name the folder that contains usr, for example an unpacked image"
            }
            Self::RootUnreachable { problem: RootProblem::Missing, .. } => {
                "check the path: `dir:` is followed by an absolute path"
            }
            Self::RootUnreachable { problem: RootProblem::Unreadable, .. } => {
                "make the folder and all folders above it searchable: `chmod o+x`; or move it below /srv or /var/lib"
            }
            Self::RootElsewhere { .. } => {
                "name an image that the engine has or can pull, or use crun, runc or an engine on this machine"
            }
            Self::MachineMissing { .. } => {
                "`podman machine init` and `podman machine start`, or allow it with MCP_BRIDGE_MACHINE_INIT=1"
            }
            Self::MachineFailed { .. } => {
                "`podman machine start` shows the reason; `podman machine rm` and `podman machine init` make a new machine"
            }
            Self::UnknownConnection { .. } => {
                "`podman system connection list` and `docker context ls` list the names; addresses come from CONTAINER_HOST and DOCKER_HOST"
            }
            Self::TimedOut { .. } => {
                "check whether the host is overloaded or the engine's machine is down; run `codebridge doctor`"
            }
            Self::Stopped => "try again",
            Self::Other { .. } => "run the command by hand, or `codebridge doctor` to try all runtimes",
        };
        hint.into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, message) = match self {
            Self::NotInstalled => ("not installed", ""),
            Self::NotExecutable { message } => ("cannot be executed", message.as_str()),
            Self::DaemonUnreachable { message, .. } => ("the engine does not answer", message.as_str()),
            Self::HostKeyRefused { message } => {
                ("ssh does not trust the host key of the engine's machine", message.as_str())
            }
            Self::LoginRefused { message } => {
                ("ssh could not log in to the engine's machine", message.as_str())
            }
            Self::HybridCgroups => ("this host mixes cgroup v1 and v2 (hybrid), which crun refuses", ""),
            Self::NoUserNamespaces { message } => ("user namespaces are not allowed", message.as_str()),
            Self::NoSubuids { message } => ("this user has no subordinate ids", message.as_str()),
            Self::RlimitDenied { message } => ("a resource limit cannot be set", message.as_str()),
            Self::Confined { message } => {
                ("the container around this process does not allow it", message.as_str())
            }
            Self::CgroupDenied { message } => ("a control group cannot be used", message.as_str()),
            Self::ImageMissing { image, message } => {
                return if message.is_empty() {
                    write!(f, "image '{image}' is not in the engine's store")
                } else {
                    write!(f, "image '{image}' is unavailable: {message}")
                };
            }
            Self::ProgramMissing { message } => ("the image has no such program", message.as_str()),
            Self::RootUnreachable { message, .. } => ("the root filesystem cannot be used", message.as_str()),
            Self::RootElsewhere { message } => {
                ("the engine cannot reach the root filesystem", message.as_str())
            }
            Self::MachineMissing { message } => {
                ("podman needs a machine and there is none", message.as_str())
            }
            Self::MachineFailed { message } => ("the podman machine does not start", message.as_str()),
            Self::UnknownConnection { message } => ("there is no such engine", message.as_str()),
            Self::TimedOut { message } => ("did not start in time", message.as_str()),
            Self::Stopped => ("stopped before the result was known", ""),
            Self::Other { message } => ("failed", message.as_str()),
        };
        f.write_str(what)?;
        if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_fits_the_problem() {
        let unreachable = |denied| {
            Refusal::DaemonUnreachable { message: String::new(), product: None, denied }.hint().into_owned()
        };
        assert!(unreachable(true).contains("--groups docker"));
        assert!(unreachable(false).starts_with("start the engine"));
        let root = |problem| Refusal::RootUnreachable { message: String::new(), problem }.hint();
        assert!(root(RootProblem::Missing).starts_with("check the path"));
        assert!(root(RootProblem::NotARoot).contains("usr"));
        assert!(root(RootProblem::Unreadable).contains("chmod"));
    }

    #[test]
    fn a_refusal_of_an_earlier_version_is_read() {
        let text = r#"{"reason":"root-unreachable","message":"x"}"#;
        let problem = RootProblem::Unreadable;
        assert_eq!(
            serde_json::from_str::<Refusal>(text).unwrap(),
            Refusal::RootUnreachable { message: "x".into(), problem }
        );
    }
}
