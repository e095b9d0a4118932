//! A runtime as its user names it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The runtimes that have a driver, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// <https://podman.io>, rootful or rootless.
    Podman,
    /// The docker CLI, with any engine that answers it.
    Docker,
    /// <https://github.com/containers/crun>.
    Crun,
    /// <https://github.com/opencontainers/runc>.
    Runc,
    /// Pods of a cluster, through kubectl: <https://kubernetes.io/docs/reference/kubectl/>.
    Kubernetes,
}

impl RuntimeKind {
    /// The kinds of the automatic choice, in its order.
    pub const ALL: [Self; 4] = [Self::Podman, Self::Docker, Self::Crun, Self::Runc];

    /// The names of all kinds that need nothing else to be named, in the same order.
    pub const NAMES: [&str; 4] =
        [Self::Podman.name(), Self::Docker.name(), Self::Crun.name(), Self::Runc.name()];

    /// Returns the name by which its user chooses it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            other => other.program_name(),
        }
    }

    /// Returns the usual name of the program.
    pub const fn program_name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Crun => "crun",
            Self::Runc => "runc",
            Self::Kubernetes => "kubectl",
        }
    }

    /// Returns the kind of a program by its file name: `podman-remote` is a podman.
    pub fn of_program(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| name.starts_with(kind.program_name()))
    }
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A runtime as the user names it: `crun`, `podman`, `podman:CONNECTION`, `docker:CONTEXT`, `kubernetes:CONTEXT/NAMESPACE`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    pub kind: RuntimeKind,
    /// A connection of podman or a context of docker; None = the client's default. For Kubernetes always a context of kubectl, and
    /// perhaps a namespace after a slash.
    pub connection: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a runtime: expected podman, docker, crun, runc, podman:CONNECTION, docker:CONTEXT or kubernetes:CONTEXT/NAMESPACE"
)]
pub struct TargetError(pub String);

impl Target {
    /// Returns the context of kubectl and the namespace that are named. The namespace follows the last slash; without one it is
    /// that of the context.
    pub(crate) fn pod_place(&self) -> (&str, Option<&str>) {
        let name = self.connection.as_deref().unwrap_or_default();
        match name.rsplit_once('/') {
            Some((context, namespace)) => (context, Some(namespace).filter(|it| !it.is_empty())),
            None => (name, None),
        }
    }
}

impl From<RuntimeKind> for Target {
    fn from(kind: RuntimeKind) -> Self {
        Self { kind, connection: None }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        let (name, connection) = match text.split_once(':') {
            Some((name, connection)) => (name, Some(connection)),
            None => (text, None),
        };
        let name = name.to_ascii_lowercase();
        let mut kinds = RuntimeKind::ALL.into_iter().chain([RuntimeKind::Kubernetes]);
        let kind = kinds.find(|kind| kind.name() == name);
        // It becomes an argument of a command line.
        let fits = |kind| {
            connection.map_or(kind != RuntimeKind::Kubernetes, |connection| {
                !matches!(kind, RuntimeKind::Crun | RuntimeKind::Runc)
                    && !connection.is_empty()
                    && !connection.starts_with('-')
                    && !connection.contains(|c: char| c.is_whitespace() || c.is_control())
            })
        };
        let kind = kind.filter(|kind| fits(*kind)).ok_or_else(|| TargetError(text.to_owned()))?;
        Ok(Self { kind, connection: connection.map(str::to_owned) })
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.connection.as_ref().map_or(Ok(()), |connection| write!(f, ":{connection}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RuntimeChoice {
    /// The first one that runs a sandbox.
    Auto,
    /// These, found in `PATH`; new sandboxes are spread over several. Never empty, and none is named twice.
    Named(Vec<Target>),
    Program(PathBuf),
}

impl FromStr for RuntimeChoice {
    type Err = TargetError;

    /// Reads `auto`, a path (it contains a slash), or targets separated by commas.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        let names_cluster = |part: &str| part.trim().to_ascii_lowercase().starts_with("kubernetes:");
        if text.contains('/') && !text.split(',').any(names_cluster) {
            return Ok(Self::Program(text.into()));
        }
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let mut targets: Vec<Target> = Vec::new();
        for target in text.split(',') {
            let target = target.parse()?;
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        Ok(Self::Named(targets))
    }
}

impl fmt::Display for RuntimeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(targets) => {
                let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
                f.write_str(&names.join(","))
            }
            Self::Program(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_printed_as_it_was_typed() {
        for text in ["podman", "docker", "crun", "runc", "podman:big-box", "docker:a.b_c+d", "podman:a:b"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!(" Podman:Big ".parse::<Target>().unwrap().to_string(), "podman:Big");
        for (text, context, namespace) in [
            ("kubernetes:lab", "lab", None),
            ("kubernetes:lab/boxes", "lab", Some("boxes")),
            ("kubernetes:arn:aws:eks:x:1:cluster/big/boxes", "arn:aws:eks:x:1:cluster/big", Some("boxes")),
            ("kubernetes:a/b/", "a/b", None),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.to_string().as_str(), target.pod_place()), (text, (context, namespace)));
        }
        for text in ["kubernetes", "kubernetes:", "kubernetes:-x"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        for text in ["", "lxc", "crun:x", "podman:", "docker:-x", "docker:a b", "podman:a\nb", ":x"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_choice_is_automatic_a_list_of_targets_or_a_program() {
        for (text, printed) in [
            (" AUTO ", "auto"),
            ("podman:Big, docker:x,crun,podman:Big", "podman:Big,docker:x,crun"),
            ("/opt/crun", "/opt/crun"),
            ("kubernetes:a/b,crun", "kubernetes:a/b,crun"),
        ] {
            assert_eq!(text.parse::<RuntimeChoice>().unwrap().to_string(), printed);
        }
        let error = "podman,lxc:x,docker".parse::<RuntimeChoice>().unwrap_err();
        assert_eq!(error, TargetError("lxc:x".into()));
        assert!("auto,podman".parse::<RuntimeChoice>().is_err());
        assert!("podman,,docker".parse::<RuntimeChoice>().is_err());
    }
}
