//! What detection is asked, and what it answers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::{MachineReport, ShareReport};
use crate::plan::HeldLimits;
use crate::refusal::Refusal;
use crate::runtime::{RuntimeId, RuntimeKind, Target};
use crate::spec::{RootFs, SandboxSpec};

/// What is run to see whether a runtime works.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The sandbox; its name and root are filled in.
    pub template: SandboxSpec,
    /// What its standard output has to be.
    pub expected: Vec<u8>,
    /// How long it may take to come up.
    pub limit: Duration,
}

/// A runtime that works, and what it will start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The runtime.
    pub runtime: RuntimeId,
    /// The root as the runtime takes it: images are unpacked for those that need it.
    pub root: RootFs,
    /// The root as the user named it.
    pub asked: String,
    /// Environment of the image where the runtime does not know it.
    pub env: Vec<(String, String)>,
    /// Volumes that the image wants and the engine would make.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Which mechanism holds each limit.
    pub held: HeldLimits,
    /// Whether the root is not the one that was wanted first.
    pub fallback: bool,
    /// The place of the root in the order of preference.
    #[serde(skip)]
    pub(super) rank: usize,
}

/// What was found out about one runtime with one root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// Which runtime.
    pub kind: RuntimeKind,
    /// Which of its engines, when one was named.
    pub connection: Option<String>,
    /// Where its program is.
    pub program: Option<PathBuf>,
    /// The first line of its `--version`.
    pub version: Option<String>,
    /// The root it was tried with, as the user named it.
    pub root: String,
    /// What works, or why nothing does.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The machine that its engine is in, when it is in one.
    pub machine: Option<MachineReport>,
    /// Whether an engine elsewhere sees the folder that it should; None for engines that are here.
    pub share: Option<ShareReport>,
    /// Whether sandboxes get the bridge's own seccomp profile, when it works.
    pub own_profile: Option<bool>,
    /// What mends it, when it does not work.
    pub hint: Option<String>,
}

/// The end of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A sandbox ran.
    Works(Box<Choice>),
    /// None did.
    Refused(Refusal),
}

/// No runtime works.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{}", self.text())]
pub struct NothingWorks {
    /// Every runtime that was tried, with each root, and why it was refused.
    pub tried: Vec<(Target, String, Refusal)>,
}

impl NothingWorks {
    /// Whether some runtime would work if it had the image.
    pub fn lacks_image(&self) -> bool {
        self.tried.iter().any(|(_, _, refusal)| refusal.is_image())
    }

    pub(super) fn lacks_machine(&self) -> bool {
        self.tried.iter().any(|(_, _, refusal)| matches!(refusal, Refusal::MachineMissing { .. }))
    }

    fn text(&self) -> String {
        let lacks_image = self.lacks_image();
        let mut text =
            String::from(if lacks_image { "no image to run" } else { "no container runtime works" });
        let mut hints = Vec::new();
        for (target, root, refusal) in &self.tried {
            text.push_str(&format!("\n  {target} with {root}: {refusal}"));
            // With an image missing, what to install is not the question.
            if (!lacks_image || refusal.is_image()) && !hints.contains(&refusal.hint()) {
                hints.push(refusal.hint());
            }
        }
        for hint in hints {
            text.push_str(&format!("\n  hint: {hint}"));
        }
        text
    }
}
