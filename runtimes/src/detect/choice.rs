//! The questions to detection, and its answers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::{MachineReport, ShareReport};
use crate::plan::HeldLimits;
use crate::refusal::Refusal;
use crate::runtime::{RuntimeId, RuntimeKind, Target};
use crate::spec::{RootFs, SandboxSpec};

/// The sandbox that shows whether a runtime works.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The sandbox, without its name and root.
    pub template: SandboxSpec,
    /// The expected standard output.
    pub expected: Vec<u8>,
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
    /// Whether the root is not the first choice.
    pub fallback: bool,
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
        let lacks_image = self.lacks_image();
        let mut text =
            String::from(if lacks_image { "no image to run" } else { "no container runtime works" });
        let mut hints = Vec::new();
        for (target, root, refusal) in &self.tried {
            text.push_str(&format!("\n  {target} with {root}: {refusal}"));
            // When the image is missing, what to install does not matter.
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
