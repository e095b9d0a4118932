//! Diagnosis: what works on this host, what does not and why, what is picked, and what would mend it.
//!
//! `text` writes it for people, on one screen; as JSON its fields are a promise to programs (`README.md`). `fix` does what
//! can be done without asking anybody.

mod fix;
mod text;

use std::path::Path;
use std::time::Instant;

use codebridge_runtimes::{
    Fact, HeldLimits, Mechanism, ProbeReport, Setback, StateError, Target, Verdict, host_facts,
};
use rustix::fs::{Access, access};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::housekeeping::{self, Listed};
use crate::image_sources::image_resolver;
use crate::session::{Caller, RunPython, RunRequest, Sessions, Status};
use crate::settings::{RuntimeChoice, Settings};
use crate::upstream::Upstream;
use crate::workspace::Workspace;

pub use fix::fix;

/// The form of the JSON. Fields are added without a new number; one that goes or means something else has one.
const FORM: u32 = 1;

/// Everything that `codebridge doctor` says.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// The number of this form.
    pub form: u32,
    /// Whether code can run here.
    pub ready: bool,
    /// In one word.
    pub status: Readiness,
    /// Why it is less than ready, one sentence each.
    pub reduced: Vec<String>,
    /// The runtime that is picked, and with which root.
    pub picked: Option<Picked>,
    /// Each runtime that was asked for, with its engine, machine and share.
    pub runtimes: Vec<ProbeReport>,
    /// A runtime that passed its probe before and then failed to launch.
    pub setback: Option<Setback>,
    /// What the host allows.
    pub host: Vec<Fact>,
    /// Images for crun and runc.
    pub images: Store,
    /// The user's MCP servers.
    pub servers: Servers,
    /// Sandboxes that nobody answers for any more.
    pub leftovers: Vec<Listed>,
    /// Real code in a real session; none where nothing was picked.
    pub run: Option<Run>,
    /// What `--fix` did.
    pub fixed: Vec<String>,
}

/// How well code can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// With every guarantee.
    Ready,
    /// With fewer guarantees.
    Reduced,
    /// Not at all.
    NotReady,
}

/// The choice and its reason.
#[derive(Debug, Serialize)]
pub struct Picked {
    /// Which runtime.
    pub runtime: Target,
    /// What it starts, as one would name it.
    pub root: String,
    /// Why this one.
    pub why: String,
    /// Whether every limit is kept for the sandbox as a whole.
    pub full_limits: bool,
}

/// The store of images.
#[derive(Debug, Serialize)]
pub struct Store {
    /// Its folder.
    pub folder: std::path::PathBuf,
    /// How many images it has.
    pub images: usize,
    /// Bytes on disk.
    pub bytes: u64,
}

/// Definitions of MCP servers.
#[derive(Debug, Serialize)]
pub struct Servers {
    /// How many can be used.
    pub used: usize,
    /// Those that are not used: name, place and reason.
    pub skipped: Vec<SkippedServer>,
    /// Files that cannot be read.
    pub warnings: Vec<String>,
}

/// A definition that is not used.
#[derive(Debug, Serialize)]
pub struct SkippedServer {
    /// Its name.
    pub name: String,
    /// File and line.
    pub source: String,
    /// Why.
    pub why: String,
}

/// `print(6*7)`, from the call to its result.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Whether it said 42.
    pub ok: bool,
    /// Milliseconds in all, a new session with its sandbox included.
    pub milliseconds: u128,
    /// Milliseconds of the code alone.
    pub code_milliseconds: u128,
    /// What went wrong.
    pub error: Option<String>,
}

impl Diagnosis {
    /// Tries every runtime with a real sandbox, then runs code in a session.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub async fn make(workspace: &Workspace) -> Result<Self, StateError> {
        let Workspace { bridge, sessions, upstream } = workspace;
        let settings = &bridge.settings;
        let runtimes = bridge.launcher.examine().await?;
        let picked = pick(&runtimes, settings);
        let run = if picked.is_some() { Some(run(sessions, settings).await) } else { None };
        let mut reduced = picked.as_ref().map(|picked| reductions(picked, &runtimes)).unwrap_or_default();
        if picked.is_some() && !can_be_written(&settings.state_dir) {
            let folder = settings.state_dir.display();
            reduced.push(format!(
                "{folder} cannot be written: tools are not saved, and what servers offer is asked anew each time; set MCP_BRIDGE_STATE_DIR"
            ));
        }
        let works = picked.is_some() && run.as_ref().is_none_or(|run| run.ok);
        let status = match (works, reduced.is_empty()) {
            (false, _) => Readiness::NotReady,
            (true, false) => Readiness::Reduced,
            (true, true) => Readiness::Ready,
        };
        let listed = housekeeping::list(settings).await;
        Ok(Self {
            form: FORM,
            ready: works,
            status,
            reduced,
            picked,
            runtimes,
            setback: bridge.launcher.setback(),
            host: host_facts(),
            images: store(),
            servers: servers(upstream),
            leftovers: listed.into_iter().filter(|one| one.owner == "dead").collect(),
            run,
            fixed: Vec::new(),
        })
    }
}

/// What a call would use.
fn pick(runtimes: &[ProbeReport], settings: &Settings) -> Option<Picked> {
    let works = |report: &ProbeReport| match &report.verdict {
        Verdict::Works(choice) => Some((**choice).clone()),
        Verdict::Refused(_) => None,
    };
    // A runtime that has the wanted image goes before one that has to make do with another.
    let mut working: Vec<_> = runtimes.iter().filter_map(works).collect();
    working.sort_by_key(|choice| choice.fallback);
    let spread = matches!(&settings.runtime.value, RuntimeChoice::Named(names) if names.len() > 1);
    let count = working.len();
    working.into_iter().next().map(|choice| Picked {
        runtime: choice.runtime.target(),
        why: match (runtimes.len(), choice.fallback) {
            _ if spread => format!("new sessions go to the least loaded of {count} that work"),
            (1, _) => "the one that was asked for".into(),
            (_, false) => format!("the first that ran a sandbox of {}", choice.asked),
            (_, true) => {
                format!(
                    "the first that ran a sandbox; the image is not to be had, {} stands in",
                    choice.asked
                )
            }
        },
        full_limits: is_full(&choice.held),
        root: choice.asked.to_string(),
    })
}

/// What is weaker than it should be where code would run.
fn reductions(picked: &Picked, runtimes: &[ProbeReport]) -> Vec<String> {
    let mut reduced = Vec::new();
    let picked_report = |report: &&ProbeReport| {
        report.kind == picked.runtime.kind && report.connection == picked.runtime.connection
    };
    let Some(report) = runtimes.iter().find(picked_report) else { return reduced };
    let Verdict::Works(choice) = &report.verdict else { return reduced };
    let HeldLimits { memory, pids, cpus } = choice.held;
    if memory == Mechanism::Watch {
        let why = "no control group holds memory and processes: rlimits stand in, and what all processes have together \
                   is watched from outside";
        reduced.push(why.into());
    } else if memory == Mechanism::Rlimit || pids == Mechanism::Rlimit {
        reduced.push(
            "no control group holds memory and processes: rlimits stand in, memory counts per process".into(),
        );
    }
    if cpus == Mechanism::Nothing {
        reduced.push("nothing holds the processor limit that is set".into());
    }
    if choice.fallback {
        reduced.push(format!("the image that is wanted is not to be had, {} stands in", choice.asked));
    }
    if report.own_profile == Some(false) {
        let why = "the engine does not see the folder that would carry our seccomp profile: its own holds";
        reduced.push(why.into());
    }
    reduced
}

/// Whether a folder is there for us, or can be made.
fn can_be_written(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|folder| folder.is_dir() && access(folder, Access::WRITE_OK).is_ok())
}

fn is_full(held: &HeldLimits) -> bool {
    [held.memory, held.pids, held.cpus].iter().all(|mechanism| *mechanism == Mechanism::Cgroup)
}

async fn run(sessions: &Sessions, settings: &Settings) -> Run {
    let request = RunRequest {
        code: "print(6*7)".into(),
        servers: Vec::new(),
        timeout: settings.timeout.value,
        session: RunRequest::THROW_AWAY.into(),
    };
    let began = Instant::now();
    // Nobody listens to a diagnosis.
    let (progress, _) = mpsc::channel(1);
    let outcome = sessions.run(request, Caller::without_answers(progress, CancellationToken::new())).await;
    Run {
        ok: outcome.status == Status::Success && outcome.stdout.text.trim() == "42",
        milliseconds: began.elapsed().as_millis(),
        code_milliseconds: outcome.elapsed.as_millis(),
        error: outcome.error,
    }
}

fn store() -> Store {
    let images = image_resolver(false);
    let store = images.store();
    let usage = store.usage().unwrap_or_default();
    Store {
        folder: store.dir().to_path_buf(),
        images: store.list().map_or(0, |images| images.len()),
        bytes: usage.roots + usage.blobs + usage.partial,
    }
}

fn servers(upstream: &Upstream) -> Servers {
    let snapshot = upstream.snapshot();
    let skipped = snapshot.skipped.iter().filter_map(|server| {
        let why = server.definition.as_ref().err()?.to_string();
        Some(SkippedServer { name: server.name.to_string(), source: server.source.to_string(), why })
    });
    Servers {
        used: snapshot.servers.len(),
        skipped: skipped.collect(),
        warnings: snapshot.warnings.iter().map(ToString::to_string).collect(),
    }
}
