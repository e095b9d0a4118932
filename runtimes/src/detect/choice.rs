//! The questions to detection, and its answers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kube::Walls;
use crate::machine::{MachineReport, ShareReport};
use crate::plan::{HeldLimits, ShareMechanism};
use crate::refusal::{Refusal, RootProblem};
use crate::runtime::{RuntimeId, RuntimeKind, Target};
use crate::spec::{RootFs, SandboxSpec};

/// The sandbox that shows whether a runtime works.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The sandbox, without its name and root.
    pub template: SandboxSpec,
    /// The expected standard output.
    pub expected: Vec<u8>,
    /// The command in its place for a pod. It reads the seccomp filter in hexadecimal digits and the address of another pod,
    /// each on a line, installs the filter, and says after the expected output what answered before and after, as JSON.
    pub pod_argv: Vec<String>,
    /// The command of another pod, which listens until its input ends. It prints its address and port, or `-`.
    pub peer_argv: Vec<String>,
    /// How long the sandbox may take to answer.
    pub limit: Duration,
}

/// A runtime that works, and what it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub runtime: RuntimeId,
    /// The root as the runtime uses it: images are unpacked for runtimes without a store.
    pub root: RootFs,
    /// The root as the user named it.
    pub asked: String,
    /// The environment of the image, where the runtime does not know it.
    pub env: Vec<(String, String)>,
    /// The volumes of the image, which the engine would make.
    #[serde(default)]
    pub volumes: Vec<String>,
    pub held: HeldLimits,
    /// What is between code and the network, in a pod.
    #[serde(default)]
    pub walls: Option<Walls>,
    /// Whether the root is not the first choice.
    pub fallback: bool,
    /// The runtimes that come before and may have refused the security options of the user.
    #[serde(default)]
    pub refused_options: Vec<(Target, Refusal)>,
    /// The place of the root in the order of preference.
    #[serde(skip)]
    pub(super) rank: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    pub kind: RuntimeKind,
    /// The connection or context, when one was named.
    pub connection: Option<String>,
    pub program: Option<PathBuf>,
    /// The first line of its `--version`.
    pub version: Option<String>,
    /// The root it was tried with, as the user named it.
    pub root: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub machine: Option<MachineReport>,
    /// Whether a remote engine sees the shared folder; None for local engines.
    pub share: Option<ShareReport>,
    /// Whether sandboxes get the bridge's own seccomp profile, when it works.
    pub own_profile: Option<bool>,
    /// How sandboxes get the folders that are shared with them, when it works.
    pub share_mechanism: Option<ShareMechanism>,
    /// What to do when it does not work.
    pub hint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Works(Box<Choice>),
    Refused(Refusal),
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{}", self.text())]
pub struct NothingWorks {
    /// Every runtime that was tried, with each root, and why it was refused.
    pub tried: Vec<(Target, String, Refusal)>,
}

impl NothingWorks {
    /// Returns whether some runtime would work if it had the image.
    pub fn lacks_image(&self) -> bool {
        self.tried.iter().any(|(_, _, refusal)| refusal.is_image())
    }

    pub(super) fn lacks_machine(&self) -> bool {
        self.tried.iter().any(|(_, _, refusal)| matches!(refusal, Refusal::MachineMissing { .. }))
    }

    fn text(&self) -> String {
        let installed: Vec<&Attempt> =
            self.tried.iter().filter(|(_, _, refusal)| *refusal != Refusal::NotInstalled).collect();
        let Some(first) = installed.first() else { return self.nothing_found() };
        let same = |it: &&&Attempt| it.0 == first.0 && it.2 == first.2;
        if installed.iter().filter(same).count() == installed.len() {
            return with_hint(headline(first), first);
        }
        // Where another image was tried in its place, the image is not all that is wrong.
        let image = installed.iter().find(|it| it.2.is_image());
        if let Some(image) = image
            && installed.iter().all(|it| it.1 == image.1)
        {
            return with_hint(headline(image), image);
        }
        list_of(&installed)
    }

    fn nothing_found(&self) -> String {
        match &self.tried[..] {
            [] => "no container runtime works".into(),
            [first, rest @ ..] if rest.iter().all(|it| it.0 == first.0) => with_hint(headline(first), first),
            [first, ..] => {
                let names = self.tried.iter().filter(|it| it.1 == first.1).map(|it| it.0.to_string());
                let names: Vec<String> = names.collect();
                with_hint(format!("no container runtime found ({})", names.join(", ")), first)
            }
        }
    }
}

/// A runtime, the root that it was tried with, and why it was refused.
type Attempt = (Target, String, Refusal);

/// Returns what is wrong in one sentence, which stands alone.
fn headline((target, root, refusal): &Attempt) -> String {
    match refusal {
        Refusal::NotInstalled => format!("{target} is not installed"),
        Refusal::ProgramMissing { .. } => format!("{root} has no python3"),
        Refusal::RootUnreachable { problem: RootProblem::Missing, .. } => format!("{root} does not exist"),
        Refusal::RootUnreachable { message, .. } => message.clone(),
        Refusal::ImageMissing { .. } => refusal.to_string(),
        // Its address names it, unless the user chose a connection.
        Refusal::DaemonUnreachable { at: Some(_), .. } if target.connection.is_none() => refusal.to_string(),
        other => format!("{target} does not work: {other}"),
    }
}

fn with_hint(text: String, (target, _, refusal): &Attempt) -> String {
    format!("{text}\nhint: {}", refusal.hint(target.kind))
}

fn list_of(attempts: &[&Attempt]) -> String {
    const DOCTOR: &str = "run `codebridge doctor`";
    let mut text = String::from("no container runtime works");
    let mut hints: Vec<(String, Vec<String>)> = Vec::new();
    for (target, root, refusal) in attempts {
        text.push_str(&format!("\n  {target} ({root}): {refusal}"));
        let (hint, name) = (refusal.hint(target.kind).into_owned(), target.to_string());
        match hints.iter_mut().find(|(known, _)| *known == hint) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None if hint == DOCTOR => {}
            None => hints.push((hint, vec![name])),
        }
    }
    for (hint, names) in hints {
        text.push_str(&format!("\nhint: {}: {hint}", names.join(", ")));
    }
    text.push_str(&format!("\nhint: {DOCTOR}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Product;

    fn text(tried: &[(RuntimeKind, &str, Refusal)]) -> String {
        let tried =
            tried.iter().map(|(kind, root, refusal)| ((*kind).into(), (*root).into(), refusal.clone()));
        NothingWorks { tried: tried.collect() }.to_string()
    }

    fn missing() -> Refusal {
        let hint = Some("check your connection, or use --image host:".into());
        let message = "cannot pull nosuch:tag: docker.io is unreachable".into();
        Refusal::ImageMissing { image: "nosuch:tag".into(), message, hint }
    }

    fn down() -> Refusal {
        let at = Some("unix:///var/run/docker.sock".into());
        let product = Some(Product { name: "docker".into(), start: "systemctl start docker".into() });
        let (message, engine) = (String::new(), Some(RuntimeKind::Docker));
        Refusal::DaemonUnreachable { message, engine, at, product, denied: false }
    }

    const PULL: &str =
        "cannot pull nosuch:tag: docker.io is unreachable\nhint: check your connection, or use --image host:";

    #[test]
    fn the_first_line_says_what_is_wrong() {
        use RuntimeKind::{Crun, Docker, Podman, Runc};
        let none = RuntimeKind::ALL.map(|kind| (kind, "host:", Refusal::NotInstalled));
        assert!(text(&none).starts_with("no container runtime found (podman, docker, crun, runc)\nhint: "));
        assert!(text(&none[..1]).starts_with("podman is not installed\nhint: "));
        let image = [
            (Podman, "nosuch:tag", missing()),
            (Docker, "nosuch:tag", down()),
            (Crun, "nosuch:tag", missing()),
        ];
        assert_eq!(text(&image), PULL);
        let both = [(Docker, "a", down()), (Docker, "host:", down()), (Runc, "a", Refusal::NotInstalled)];
        let stopped = "Docker is not running at unix:///var/run/docker.sock\nhint: systemctl start docker";
        assert_eq!(text(&both), stopped);
        let python = Refusal::ProgramMissing { message: "x".into() };
        assert_eq!(
            text(&[(Crun, "dir:/x", python)]),
            "dir:/x has no python3\nhint: use an image with CPython 3.9 or newer"
        );
    }

    #[test]
    fn where_more_is_wrong_each_runtime_is_listed() {
        use RuntimeKind::{Crun, Docker, Podman};
        let other = Refusal::Other { message: "it burns".into() };
        let several = [
            (Podman, "host:", Refusal::NotInstalled),
            (Docker, "host:", down()),
            (Crun, "host:", other.clone()),
        ];
        assert_eq!(
            text(&several),
            "no container runtime works\n  docker (host:): Docker is not running at unix:///var/run/docker.sock\n  \
             crun (host:): failed: it burns\nhint: docker: systemctl start docker\nhint: run `codebridge doctor`"
        );
        // The host image, which the hint would name, does not help.
        let fallback = [(Crun, "a", missing()), (Crun, "host:", other)];
        assert!(text(&fallback).starts_with("no container runtime works\n"));
    }
}
