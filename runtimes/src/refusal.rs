//! Why a runtime cannot be used: typed, for error messages, for `doctor`, and for the choice of the next runtime.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::exec::{self, after_colon};
use crate::install::how_to_install;
use crate::runtime::RuntimeKind;

/// The program or service that has to be started when an engine does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    pub name: String,
    pub start: String,
}

/// What is wrong with the folder of a root filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootProblem {
    /// The folder, or one above it, cannot be read by the sandbox's user.
    #[default]
    Unreadable,
    Missing,
    /// The folder contains no system.
    NotARoot,
}

/// The reason why a runtime did not run a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Refusal {
    /// The program is not in `PATH`.
    #[error("not installed")]
    NotInstalled,
    #[error("cannot be executed{}", after_colon(.message))]
    NotExecutable { message: String },
    /// The host, or this user, is out of processes, descriptors or memory.
    #[error("the host has no more resources for it{}", after_colon(.message))]
    HostExhausted { message: String },
    #[error("{}", unreachable(*.engine, .at.as_deref(), *.denied, .message))]
    DaemonUnreachable {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        engine: Option<RuntimeKind>,
        /// The URL of its socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<String>,
        /// What has to be started, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        product: Option<Product>,
        /// Whether this user has no permission to use the engine's socket.
        #[serde(default)]
        denied: bool,
    },
    /// ssh has no host key, or another one, for the engine's machine.
    #[error("ssh does not trust the host key of the engine's machine{}", after_colon(.message))]
    HostKeyRefused { message: String },
    /// The engine's machine accepts none of the ssh keys that work without a passphrase prompt.
    #[error("ssh could not log in to the engine's machine{}", after_colon(.message))]
    LoginRefused { message: String },
    /// The host has cgroup v1 controllers and a cgroup2 mount: crun refuses such hosts, and so does podman with crun.
    #[error("this host mixes cgroup v1 and v2 (hybrid), which crun refuses")]
    HybridCgroups,
    /// The kernel or its settings forbid user namespaces to this user.
    #[error("user namespaces are not allowed{}", after_colon(.message))]
    NoUserNamespaces { message: String },
    /// The user has no range in `/etc/subuid`, or `newuidmap` is missing.
    #[error("this user has no subordinate ids{}", after_colon(.message))]
    NoSubuids { message: String },
    /// A limit on open files or processes cannot be set.
    #[error("a resource limit cannot be set{}", after_colon(.message))]
    RlimitDenied { message: String },
    /// The container that this process is in does not allow what a sandbox needs.
    #[error("the container around this process does not allow it{}", after_colon(.message))]
    Confined { message: String },
    /// Root has fewer capabilities than this runtime needs of root.
    #[error("root lacks a capability that it needs{}", after_colon(.message))]
    NoCapability { message: String },
    /// A control group, or a limit in it, cannot be set.
    #[error("a control group cannot be used{}", after_colon(.message))]
    CgroupDenied { message: String },
    #[error("{}", missing_image(.image, .message))]
    ImageMissing {
        image: String,
        /// A sentence that names the image; empty if there is nothing more to say.
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    #[error("the image has no python3{}", after_colon(.message))]
    ProgramMissing { message: String },
    #[error("the root filesystem cannot be used{}", after_colon(.message))]
    RootUnreachable {
        message: String,
        #[serde(default)]
        problem: RootProblem,
    },
    /// The root filesystem is on this machine and the engine is on another.
    #[error("the engine cannot reach the root filesystem{}", after_colon(.message))]
    RootElsewhere { message: String },
    #[error("podman needs a machine and there is none{}", after_colon(.message))]
    MachineMissing { message: String },
    #[error("the podman machine does not start{}", after_colon(.message))]
    MachineFailed { message: String },
    /// The client has no engine of this name.
    #[error("there is no such engine{}", after_colon(.message))]
    UnknownConnection { message: String },
    /// The cluster does not let this user do what sandboxes need.
    #[error("the cluster does not permit it{}", after_colon(.message))]
    NotPermitted { message: String },
    /// The rules of the cluster for pods do not admit it.
    #[error("the cluster does not admit the pod{}", after_colon(.message))]
    NotAdmitted { message: String, hint: String },
    /// No node takes the pod, or a quota is used up.
    #[error("the cluster cannot run another pod{}", after_colon(.message))]
    NoRoom { message: String },
    /// The node of a pod no longer answers, or the network to it is gone.
    #[error("node {node} does not answer for pod {pod}")]
    NodeLost { node: String, pod: String },
    /// A pod that ran was ended or deleted, or the connection to it broke; the message names it.
    #[error("{message}")]
    PodLost { message: String, hint: String },
    /// Code in a pod could reach the network.
    #[error("code would not be cut off from the network{}", after_colon(.message))]
    NetworkOpen { message: String },
    #[error("did not start in time{}", after_colon(.message))]
    TimedOut { message: String },
    /// The bridge was stopped during the attempt.
    #[error("the attempt was stopped")]
    Stopped,
    #[error("failed{}", after_colon(.message))]
    Other { message: String },
}

impl Refusal {
    /// Returns the refusal for a program that could not be started.
    pub(crate) fn of_start(error: &io::Error) -> Self {
        let exhausted = [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        let message = error.to_string();
        if exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            Self::HostExhausted { message }
        } else {
            Self::NotExecutable { message }
        }
    }

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

    /// Returns what to do about it where this runtime is refused: a command or one sentence.
    pub fn hint(&self, kind: RuntimeKind) -> Cow<'static, str> {
        match self {
            Self::DaemonUnreachable { product: Some(Product { start, .. }), .. } => start.clone().into(),
            Self::ImageMissing { hint: Some(hint), .. }
            | Self::NotAdmitted { hint, .. }
            | Self::PodLost { hint, .. } => hint.clone().into(),
            Self::NotInstalled => how_to_install(kind).into(),
            Self::DaemonUnreachable { .. } if kind == RuntimeKind::Kubernetes => {
                "`kubectl cluster-info --context CONTEXT` has to work; check the address in the kubeconfig, the network and the VPN".into()
            }
            Self::UnknownConnection { .. } if kind == RuntimeKind::Kubernetes => {
                "`kubectl config get-contexts` and `kubectl get namespaces` list the names; where a context's name has a slash, write kubernetes:CONTEXT/NAMESPACE; KUBECONFIG names the file".into()
            }
            Self::RootElsewhere { .. } if kind == RuntimeKind::Kubernetes => {
                "name an image that the nodes can pull".into()
            }
            Self::NodeLost { node, .. } => {
                format!("`kubectl describe node {node}` says what is known of it; `kubectl cordon {node}` keeps new pods from it").into()
            }
            other => other.fixed_hint().into(),
        }
    }

    fn fixed_hint(&self) -> &'static str {
        match self {
            Self::NotExecutable { .. } => "check the file's permissions and its architecture",
            Self::HostExhausted { .. } => {
                "end some processes, or raise the limits of processes and open files (`ulimit -u`, `ulimit -n`)"
            }
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
            Self::HybridCgroups if exec::find_program(Path::new("runc")).is_some() => {
                "use `--runtime runc`, which works here, or boot with systemd.unified_cgroup_hierarchy=1"
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
            Self::NoCapability { .. } => {
                "use `--runtime crun` or another user, or start the container with `--cap-add=SYS_ADMIN --cap-add=SYS_PTRACE`"
            }
            Self::CgroupDenied { .. } => "delegate the memory and pids controllers to this user",
            Self::ImageMissing { .. } => "check the name, or use --image host:",
            Self::ProgramMissing { .. } => "use an image with CPython 3.9 or newer",
            Self::RootUnreachable { problem: RootProblem::NotARoot, .. } => {
                "name the folder that contains usr, for example an unpacked image"
            }
            Self::RootUnreachable { problem: RootProblem::Missing, .. } => {
                "check the path, or use --image host:"
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
            Self::NotPermitted { .. } => {
                "`codebridge help kubernetes` has the smallest Role that works; ask who manages the cluster for it"
            }
            Self::NoRoom { .. } => {
                "end sessions, lower --memory, raise the quota of the namespace, or choose other nodes or a priority with --pod"
            }
            Self::NetworkOpen { .. } => {
                "use another image or other nodes: the seccomp filter of the sandbox did not hold there"
            }
            Self::TimedOut { .. } => {
                "check whether the host is overloaded or the engine's machine is down, and run `codebridge doctor`"
            }
            Self::Stopped => "try again",
            Self::NotInstalled
            | Self::NodeLost { .. }
            | Self::NotAdmitted { .. }
            | Self::PodLost { .. }
            | Self::Other { .. } => "run `codebridge doctor`",
        }
    }
}

fn missing_image(image: &str, message: &str) -> String {
    if message.is_empty() {
        format!("image '{image}' is not in the engine's store")
    } else {
        message.to_owned()
    }
}

fn unreachable(engine: Option<RuntimeKind>, at: Option<&str>, denied: bool, message: &str) -> String {
    let name = match engine {
        Some(RuntimeKind::Podman) => "Podman",
        Some(RuntimeKind::Docker) => "Docker",
        Some(RuntimeKind::Kubernetes) => "the API server",
        _ => "the engine",
    };
    match at {
        Some(at) if denied => format!("permission denied: this user may not use {name} at {at}"),
        Some(at) if at.starts_with("unix:") => format!("{name} is not running at {at}"),
        // What the engine's own client says of it adds nothing; what ssh says does.
        Some(at) if message.contains(at) && !at.starts_with("ssh:") => {
            format!("{name} does not answer at {at}")
        }
        Some(at) => format!("{name} does not answer at {at}{}", after_colon(message)),
        None => format!("{name} does not answer{}", after_colon(message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_resources_is_told_from_a_bad_program() {
        let hint = |errno: Errno| Refusal::of_start(&errno.into()).hint(RuntimeKind::Crun);
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(hint(errno).contains("raise the limits"), "{errno}");
        }
        assert!(hint(Errno::ACCESS).contains("permissions"));
    }

    #[test]
    fn a_hint_fits_the_problem() {
        let down = |denied| {
            Refusal::DaemonUnreachable {
                message: String::new(),
                engine: None,
                at: None,
                product: None,
                denied,
            }
            .hint(RuntimeKind::Docker)
            .into_owned()
        };
        assert!(down(true).contains("--groups docker"));
        assert!(down(false).starts_with("start the engine"));
        let root =
            |problem| Refusal::RootUnreachable { message: String::new(), problem }.hint(RuntimeKind::Crun);
        assert!(root(RootProblem::Missing).starts_with("check the path"));
        assert!(root(RootProblem::NotARoot).contains("usr"));
        assert!(root(RootProblem::Unreadable).contains("chmod"));
    }

    #[test]
    fn an_engine_that_is_down_is_named_with_its_address() {
        let docker = Some(RuntimeKind::Docker);
        let said = |at, denied| unreachable(docker, at, denied, "EOF");
        assert_eq!(
            said(Some("unix:///run/docker.sock"), false),
            "Docker is not running at unix:///run/docker.sock"
        );
        assert_eq!(
            said(Some("tcp://10.0.0.1:2375"), false),
            "Docker does not answer at tcp://10.0.0.1:2375: EOF"
        );
        assert!(said(Some("unix:///run/docker.sock"), true).starts_with("permission denied"));
        assert_eq!(said(None, false), "Docker does not answer: EOF");
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
