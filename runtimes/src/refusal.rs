//! Why a runtime cannot be used: typed, for errors, for `doctor`, and for the choice of the next one.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What is missing when an engine does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// Its name.
    pub name: String,
    /// The command that starts it.
    pub start: String,
}

/// The reason why a runtime did not run a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Refusal {
    /// There is no such program in PATH.
    NotInstalled,
    /// The program is there and cannot be executed.
    NotExecutable {
        /// The operating system's word.
        message: String,
    },
    /// The engine's daemon does not answer.
    DaemonUnreachable {
        /// The client's words.
        message: String,
        /// What would have to be started, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        product: Option<Product>,
    },
    /// The engine's machine is not the one that ssh knows by this address.
    HostKeyRefused {
        /// The client's words.
        message: String,
    },
    /// The engine's machine lets us in by none of the keys that can be used without a question.
    LoginRefused {
        /// The client's words.
        message: String,
    },
    /// cgroup v1 controllers beside a cgroup2 mount: crun refuses such hosts, and podman with it.
    HybridCgroups,
    /// The kernel or its settings forbid user namespaces to us.
    NoUserNamespaces {
        /// The runtime's words.
        message: String,
    },
    /// The user has no range in `/etc/subuid`, or `newuidmap` is missing.
    NoSubuids {
        /// The runtime's words.
        message: String,
    },
    /// A limit on open files or processes may not be set.
    RlimitDenied {
        /// The runtime's words.
        message: String,
    },
    /// The container that this process is in does not allow what a sandbox needs.
    Confined {
        /// The runtime's words.
        message: String,
    },
    /// A control group or a limit in it may not be set.
    CgroupDenied {
        /// The runtime's words.
        message: String,
    },
    /// The image is neither here nor to be had.
    ImageMissing {
        /// Which image.
        image: String,
        /// The engine's words.
        message: String,
    },
    /// The root filesystem has no such program.
    ProgramMissing {
        /// The runtime's words.
        message: String,
    },
    /// The root filesystem's folder cannot be read, or not by the sandbox's ids.
    RootUnreachable {
        /// What was found.
        message: String,
    },
    /// The root filesystem is on this machine and the engine on another.
    RootElsewhere {
        /// What was found.
        message: String,
    },
    /// Podman needs a machine here, and there is none.
    MachineMissing {
        /// Podman's words.
        message: String,
    },
    /// Podman's machine does not come up.
    MachineFailed {
        /// Podman's words.
        message: String,
    },
    /// The client knows no engine of this name.
    UnknownConnection {
        /// The client's words.
        message: String,
    },
    /// It did not come up in time.
    TimedOut {
        /// What was waited for.
        message: String,
    },
    /// It was tried when the bridge was told to stop.
    Stopped,
    /// Anything else, in the runtime's own last words.
    Other {
        /// Those words.
        message: String,
    },
}

impl Refusal {
    /// Whether the image, not the runtime, is what is missing.
    pub fn is_image(&self) -> bool {
        matches!(
            self,
            Self::ImageMissing { .. }
                | Self::ProgramMissing { .. }
                | Self::RootUnreachable { .. }
                | Self::RootElsewhere { .. }
        )
    }

    /// Whether this says more than another reason for the same runtime, driven in another way.
    pub(crate) fn says_more_than(&self, other: &Self) -> bool {
        let weight = |refusal: &Self| match refusal {
            Self::Other { .. } => 0,
            Self::CgroupDenied { .. } => 1,
            _ => 2,
        };
        weight(self) > weight(other)
    }

    /// Whether there is no engine to speak to, which may have been there a while ago. One elsewhere may also say nothing.
    pub(crate) fn is_absence(&self, remote: bool) -> bool {
        self.is_out_of_reach() || (remote && matches!(self, Self::TimedOut { .. }))
    }

    /// Whether nothing can be said to an engine, for a reason that its user can mend.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        matches!(
            self,
            Self::DaemonUnreachable { .. } | Self::HostKeyRefused { .. } | Self::LoginRefused { .. }
        )
    }

    /// What to do about it: a command or one sentence.
    pub fn hint(&self) -> Cow<'static, str> {
        if let Self::DaemonUnreachable { product: Some(Product { name, start }), .. } = self {
            return format!("start {name}: `{start}`").into();
        }
        let hint = match self {
            Self::NotInstalled => {
                "install it with your package manager, for example `apt-get install podman`, `crun`, `runc` or `docker.io`"
            }
            Self::NotExecutable { .. } => "check the file's permissions and its architecture",
            Self::DaemonUnreachable { message, .. } if is_about_permissions(message) => {
                "the engine is there and this user may not use it: `usermod --append --groups docker $USER` and a new login, which is as good as root; or another runtime"
            }
            Self::DaemonUnreachable { .. } => {
                "start the engine, and see that its machine is up where CONTAINER_HOST, DOCKER_HOST, the connection or the context says"
            }
            Self::HostKeyRefused { .. } => {
                "compare the host's key with its owner's word, then `ssh USER@HOST` once by hand to keep it, after `ssh-keygen -R HOST` when another one is kept"
            }
            Self::LoginRefused { .. } => {
                "`ssh -o BatchMode=yes USER@HOST` has to get in: a key without a passphrase, or one that ssh-agent holds (SSH_AUTH_SOCK); podman takes it from `system connection add --identity` or CONTAINER_SSHKEY"
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
                "start the container with `--security-opt=seccomp=unconfined` and `--security-opt=unmask=ALL` (podman) or `--security-opt=systempaths=unconfined` (docker), or lend it an engine's socket"
            }
            Self::CgroupDenied { .. } => "delegate the memory and pids controllers to this user",
            Self::ImageMissing { .. } => {
                "check the name, or use `--image oci-archive:FILE`, `--image dir:PATH` or `--image host:`"
            }
            Self::ProgramMissing { .. } => "use an image that has CPython 3.9 or newer as `python3`",
            Self::RootUnreachable { message } if message.contains("no root filesystem") => {
                "name the folder that holds usr, as an unpacked image does"
            }
            Self::RootUnreachable { message }
                if message.contains("(os error 2)") || message.contains("(os error 20)") =>
            {
                "check the path: `dir:` is followed by an absolute one"
            }
            Self::RootUnreachable { .. } => {
                "make the folder and all above it searchable: `chmod o+x`; or move it below /srv or /var/lib"
            }
            Self::RootElsewhere { .. } => {
                "name an image that the engine can pull or has; crun and runc, or an engine of this machine, can use it as it is"
            }
            Self::MachineMissing { .. } => {
                "`podman machine init` and `podman machine start`, or allow it with MCP_BRIDGE_MACHINE_INIT=1"
            }
            Self::MachineFailed { .. } => {
                "`podman machine start` by hand says more; `podman machine rm` and `podman machine init` make a new one"
            }
            Self::UnknownConnection { .. } => {
                "see `podman system connection list` and `docker context ls` for the names that there are, and CONTAINER_HOST and DOCKER_HOST for an address"
            }
            Self::TimedOut { .. } => {
                "see whether the host is overloaded, or an engine elsewhere out of reach; run `codebridge doctor`"
            }
            Self::Stopped => "try again",
            Self::Other { .. } => "run the command by hand, or `codebridge doctor` for all runtimes",
        };
        hint.into()
    }
}

/// As docker 20.10 and 29 say it, and podman of its socket.
fn is_about_permissions(message: &str) -> bool {
    message.to_ascii_lowercase().contains("permission denied")
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, message) = match self {
            Self::NotInstalled => ("not installed", ""),
            Self::NotExecutable { message } => ("cannot be executed", message.as_str()),
            Self::DaemonUnreachable { message, .. } => ("its daemon does not answer", message.as_str()),
            Self::HostKeyRefused { message } => {
                ("ssh does not know the engine's machine by its key", message.as_str())
            }
            Self::LoginRefused { message } => ("ssh is not let in to the engine's machine", message.as_str()),
            Self::HybridCgroups => ("this host mixes cgroup v1 and v2 (hybrid), which crun refuses", ""),
            Self::NoUserNamespaces { message } => ("user namespaces are not allowed", message.as_str()),
            Self::NoSubuids { message } => ("no subordinate ids for this user", message.as_str()),
            Self::RlimitDenied { message } => ("a resource limit may not be set", message.as_str()),
            Self::Confined { message } => {
                ("the container around this process does not allow it", message.as_str())
            }
            Self::CgroupDenied { message } => ("a control group may not be used", message.as_str()),
            Self::ImageMissing { image, message } => {
                return if message.is_empty() {
                    write!(f, "image '{image}' is not here")
                } else {
                    write!(f, "image '{image}' is not to be had: {message}")
                };
            }
            Self::ProgramMissing { message } => ("the image has no such program", message.as_str()),
            Self::RootUnreachable { message } => ("the root filesystem cannot be reached", message.as_str()),
            Self::RootElsewhere { message } => ("the root filesystem is out of its reach", message.as_str()),
            Self::MachineMissing { message } => {
                ("it needs a podman machine and there is none", message.as_str())
            }
            Self::MachineFailed { message } => ("its podman machine does not come up", message.as_str()),
            Self::UnknownConnection { message } => ("there is no such engine", message.as_str()),
            Self::TimedOut { message } => ("did not come up in time", message.as_str()),
            Self::Stopped => ("stopped before it was known", ""),
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
    fn hints_say_what_mends_it() {
        let unreachable =
            |message: &str| Refusal::DaemonUnreachable { message: message.into(), product: None };
        let denied = unreachable("permission denied while trying to connect to the Docker daemon socket");
        assert!(denied.hint().contains("--groups docker"), "{}", denied.hint());
        assert!(unreachable("connection refused").hint().starts_with("start the engine"));
        let unreadable = |message: &str| Refusal::RootUnreachable { message: message.into() }.hint();
        assert!(
            unreadable("failed to read '/x': No such file or directory (os error 2)")
                .starts_with("check the path")
        );
        assert!(unreadable("'/x' is no root filesystem: it has neither").contains("usr"));
        assert!(unreadable("Permission denied (os error 13)").contains("chmod"));
    }
}
