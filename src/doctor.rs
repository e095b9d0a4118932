//! Diagnosis: what works on this host, what does not and why, and what is picked.

use std::fmt::Write;

use codebridge_runtimes::{HeldLimits, ProbeReport, RootFs, RuntimeKind, Setback, Verdict};
use serde::Serialize;

use crate::session::Sessions;

/// Everything that `codebridge doctor` says.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// Whether code can run here.
    pub ready: bool,
    /// The runtime that is picked, and with which root.
    pub picked: Option<Picked>,
    /// Each runtime that was asked for.
    pub runtimes: Vec<ProbeReport>,
    /// A runtime that passed its probe before and then failed to launch.
    pub setback: Option<Setback>,
}

/// The choice and its reason.
#[derive(Debug, Serialize)]
pub struct Picked {
    /// Which runtime.
    pub runtime: RuntimeKind,
    /// What it starts.
    pub root: RootFs,
    /// Why this one.
    pub why: String,
    /// Whether every limit is kept for the sandbox as a whole.
    pub full_limits: bool,
}

impl Diagnosis {
    /// Tries every runtime with a real sandbox.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub async fn make(sessions: &Sessions) -> Result<Self, String> {
        let runtimes = sessions.examine().await?;
        let works = |report: &ProbeReport| match &report.verdict {
            Verdict::Works(choice) => Some((**choice).clone()),
            Verdict::Refused(_) => None,
        };
        // A runtime that has the wanted image goes before one that has to make do with another.
        let mut working: Vec<_> = runtimes.iter().filter_map(works).collect();
        working.sort_by_key(|choice| choice.fallback);
        let picked = working.into_iter().next().map(|choice| Picked {
            runtime: choice.runtime.kind,
            why: match (runtimes.len(), choice.fallback) {
                (1, _) => "the one that was asked for".into(),
                (_, false) => format!("the first that ran a sandbox of {}", choice.asked),
                (_, true) => format!(
                    "the first that ran a sandbox; the image is not to be had, {} stands in",
                    choice.asked
                ),
            },
            full_limits: is_full(&choice.held),
            root: choice.asked,
        });
        Ok(Self { ready: picked.is_some(), picked, runtimes, setback: sessions.setback() })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for report in &self.runtimes {
            describe(&mut text, report);
        }
        if let Some(Setback { runtime, refusal, .. }) = &self.setback {
            let _ =
                writeln!(text, "note     {runtime} passed its probe and later failed to launch: {refusal}");
        }
        match &self.picked {
            Some(picked) => {
                let _ = writeln!(text, "picked   {} with {}: {}", picked.runtime, picked.root, picked.why);
            }
            None => text.push_str("picked   nothing: no code can run here\n"),
        }
        text
    }
}

fn describe(text: &mut String, report: &ProbeReport) {
    let place = report.program.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let version = report.version.as_deref().unwrap_or_default();
    match &report.verdict {
        Verdict::Works(choice) => {
            let with = choice.runtime.oci_runtime.as_ref().map(|path| format!(" with {}", path.display()));
            let _ = writeln!(
                text,
                "{:<8} works     {place}{} ({version})",
                report.kind.to_string(),
                with.unwrap_or_default()
            );
            let HeldLimits { memory, pids, cpus } = choice.held;
            let _ = writeln!(text, "         root      {}", choice.asked);
            let _ = writeln!(text, "         limits    memory: {memory}, pids: {pids}, cpus: {cpus}");
        }
        Verdict::Refused(refusal) => {
            let found = if place.is_empty() {
                String::new()
            } else {
                format!("{place} ({version}) with {}: ", report.root)
            };
            let _ = writeln!(text, "{:<8} refused   {found}{refusal}", report.kind.to_string());
            let _ = writeln!(text, "         hint      {}", refusal.hint());
        }
    }
}

fn is_full(held: &HeldLimits) -> bool {
    use codebridge_runtimes::Mechanism::Cgroup;
    [held.memory, held.pids, held.cpus].iter().all(|mechanism| *mechanism == Cgroup)
}
