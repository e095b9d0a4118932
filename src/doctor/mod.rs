//! Diagnosis: what works on this host, what does not and why, which runtime is picked, and how to fix the rest.
//!
//! `text` writes it for people, on one screen. As JSON its fields are documented for programs. `fix` does what needs no
//! question.

mod fix;
mod text;

use std::path::{Path, PathBuf};
use std::time::Instant;

use codebridge_runtimes::{
    Choice, Fact, HeldLimits, Mechanism, OwnerState, ProbeReport, RuntimeChoice, Setback, StateError, Target,
    Verdict, host_facts,
};
use jiff::Timestamp;
use rustix::fs::{Access, access};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, folder_in, verify};
use crate::housekeeping::{self, SandboxEntry};
use crate::http::{Listening, expiry_of, listeners};
use crate::image_sources::image_resolver;
use crate::policy::Policy;
use crate::session::{Caller, RunPython, RunRequest, Sessions, Status};
use crate::settings::Settings;
use crate::telemetry::TelemetryState;
use crate::tokens::{Scope, TokenList, Tokens, Unusable};
use crate::upstream::Upstream;
use crate::workspace::Workspace;

pub use fix::fix;

/// The version of the JSON. A new field keeps the version; a field that goes or changes its meaning gets a new one.
const FORM: u32 = 1;

/// Everything that `codebridge doctor` says.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    pub form: u32,
    /// Whether code can run here.
    pub ready: bool,
    pub status: Readiness,
    /// Why it is less than ready, one sentence each.
    pub reduced: Vec<String>,
    pub picked: Option<Picked>,
    /// Each runtime that was asked for, with its engine, machine and share.
    pub runtimes: Vec<ProbeReport>,
    /// A runtime that passed its probe and then failed to launch.
    pub setback: Option<Setback>,
    /// What the host allows.
    pub host: Vec<Fact>,
    pub images: Store,
    pub servers: Servers,
    pub logins: LoginsState,
    pub policy: PolicyState,
    pub telemetry: TelemetryState,
    pub audit: AuditState,
    pub http: Http,
    /// Sandboxes of bridges that are gone.
    pub leftovers: Vec<SandboxEntry>,
    /// Real code in a real session; None if no runtime works.
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

/// The runtime that a call would use, and the reason.
#[derive(Debug, Serialize)]
pub struct Picked {
    pub runtime: Target,
    /// What it starts, as the user names it.
    pub root: String,
    pub why: String,
    /// Whether every limit holds for the sandbox as a whole.
    pub full_limits: bool,
}

/// The store of images for crun and runc.
#[derive(Debug, Serialize)]
pub struct Store {
    pub folder: PathBuf,
    /// The number of images.
    pub images: usize,
    /// Bytes on disk.
    pub bytes: u64,
}

/// Definitions of MCP servers.
#[derive(Debug, Serialize)]
pub struct Servers {
    /// The number of definitions that can be used.
    pub used: usize,
    pub skipped: Vec<SkippedServer>,
    /// Files that cannot be read.
    pub warnings: Vec<String>,
}

/// Where logins to servers are kept.
#[derive(Debug, Serialize)]
pub struct LoginsState {
    /// `keyring` or `files`, for new ones.
    pub kept: &'static str,
    /// Why they are not kept in the keyring.
    pub why: Option<String>,
}

/// What code may do.
#[derive(Debug, Serialize)]
pub struct PolicyState {
    pub file: PathBuf,
    /// The number of rules; None without a policy, and if it has an error.
    pub rules: Option<usize>,
    /// Why every call is denied.
    pub error: Option<String>,
    /// What is probably a mistake.
    pub warnings: Vec<String>,
}

/// The audit log.
#[derive(Debug, Serialize)]
pub struct AuditState {
    pub folder: PathBuf,
    /// As `MCP_BRIDGE_AUDIT` has it.
    pub mode: &'static str,
    /// Why nothing can be recorded now.
    pub error: Option<String>,
    /// Lines of all bridges, and the bytes of their files.
    pub lines: u64,
    pub bytes: u64,
    /// What is not as it was written.
    pub problems: Vec<String>,
}

/// Who is served over HTTP, and how.
#[derive(Debug, Serialize)]
pub struct Http {
    /// The listeners of bridges with this state folder.
    pub listeners: Vec<Listener>,
    pub tokens: TokenCount,
    /// Why the tokens cannot be read.
    pub error: Option<String>,
}

/// A listener, and what its files say.
#[derive(Debug, Serialize)]
pub struct Listener {
    #[serde(flatten)]
    pub listening: Listening,
    /// When its certificate expires.
    pub certificate_expires: Option<Timestamp>,
}

/// The number of tokens.
#[derive(Debug, Default, Serialize)]
pub struct TokenCount {
    pub valid: usize,
    pub expired: usize,
    /// How many of those that hold are for the console, and for answers to approvals.
    pub console: usize,
    pub approve: usize,
    /// When the next of those that hold expires.
    pub next_expiry: Option<Timestamp>,
}

/// A definition that is not used.
#[derive(Debug, Serialize)]
pub struct SkippedServer {
    pub name: String,
    /// File and line.
    pub source: String,
    pub why: String,
}

/// A run of `print(6*7)`.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Whether it printed 42.
    pub ok: bool,
    /// Milliseconds in all, including those of a new session with its sandbox.
    pub milliseconds: u128,
    /// Milliseconds of the code alone.
    pub code_milliseconds: u128,
    pub error: Option<String>,
    /// What a first call is told, such as why a shared folder is copied.
    pub notices: Vec<String>,
}

impl Diagnosis {
    /// Tries every runtime with a real sandbox, then runs code in a session.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub async fn make(workspace: &Workspace) -> Result<Self, StateError> {
        let Workspace { bridge, sessions, upstream, policy, audit } = workspace;
        let settings = &bridge.settings;
        let runtimes = bridge.launcher.examine().await?;
        let working = best(&runtimes);
        let picked = working.map(|(_, choice)| pick(choice, &runtimes, settings));
        let mut reduced = working.map(|(report, choice)| reductions(report, choice)).unwrap_or_default();
        let run = if picked.is_some() { Some(run(sessions, settings).await) } else { None };
        if picked.is_some() && !is_writable(&settings.state_dir) {
            let folder = settings.state_dir.display();
            reduced.push(format!(
                "{folder} is not writable: tools are not saved, and servers are asked for their tools each time; set MCP_BRIDGE_STATE_DIR to a writable folder"
            ));
        }
        let works = picked.is_some() && run.as_ref().is_none_or(|run| run.ok);
        let status = match (works, reduced.is_empty()) {
            (false, _) => Readiness::NotReady,
            (true, false) => Readiness::Reduced,
            (true, true) => Readiness::Ready,
        };
        let listed = housekeeping::list(settings).await.entries;
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
            logins: logins_state(upstream).await,
            policy: policy_state(policy, upstream),
            telemetry: bridge.telemetry.examine().await,
            audit: audit_state(settings, audit).await,
            http: http(settings).await,
            leftovers: listed.into_iter().filter(|entry| entry.owner == OwnerState::Dead).collect(),
            run,
            fixed: Vec::new(),
        })
    }
}

/// Returns the runtime that a call would use. A runtime that has the wanted image goes before one that falls back to
/// another.
fn best(runtimes: &[ProbeReport]) -> Option<(&ProbeReport, &Choice)> {
    let working = runtimes.iter().filter_map(|report| match &report.verdict {
        Verdict::Works(choice) => Some((report, &**choice)),
        Verdict::Refused(_) => None,
    });
    working.min_by_key(|(_, choice)| choice.fallback)
}

fn pick(choice: &Choice, runtimes: &[ProbeReport], settings: &Settings) -> Picked {
    let asked = &choice.asked;
    let why = match (&settings.runtime.value, choice.fallback) {
        (RuntimeChoice::Named(names), _) if names.len() > 1 => {
            let working = runtimes.iter().filter(|report| matches!(report.verdict, Verdict::Works(_)));
            format!("new sessions start on the least loaded of {} that work", working.count())
        }
        _ if runtimes.len() == 1 => "the one that was asked for".into(),
        (_, false) => format!("the first that ran a sandbox with {asked}"),
        (_, true) => format!("the first that ran a sandbox; the image is unavailable, so it uses {asked}"),
    };
    let HeldLimits { memory, sockets, pids, cpus } = choice.held;
    let full_limits = [memory, sockets, pids, cpus].iter().all(|mechanism| *mechanism == Mechanism::Cgroup);
    Picked { runtime: choice.runtime.target(), root: asked.to_string(), why, full_limits }
}

/// Returns what is weaker than it should be where code would run.
fn reductions(report: &ProbeReport, choice: &Choice) -> Vec<String> {
    let mut reduced: Vec<String> = Vec::new();
    let HeldLimits { memory, pids, cpus, .. } = choice.held;
    let no_group = "no control group enforces the limits of memory and processes";
    match memory {
        Mechanism::Watch => reduced.push(format!(
            "{no_group}: rlimits apply to each process, and the bridge watches the memory of all of them together; the files in writable folders do not count"
        )),
        Mechanism::Rlimit => reduced.push(format!(
            "{no_group}: rlimits apply to each process, and nothing limits the memory of the kernel for sockets, pipes and files"
        )),
        _ if pids == Mechanism::Rlimit => reduced.push(format!("{no_group}: rlimits apply to each process")),
        _ => {}
    }
    if pids == Mechanism::Nothing {
        reduced.push(
            "the kubelet of the node limits the number of processes, not codebridge: podPidsLimit in its configuration"
                .into(),
        );
    }
    if cpus == Mechanism::Nothing {
        reduced.push("nothing enforces the CPU limit".into());
    }
    if choice.fallback {
        reduced.push(format!("the image is unavailable: {} is used instead", choice.asked));
    }
    if report.own_profile == Some(false) {
        reduced.push(
            "the engine does not see the folder with the bridge's seccomp profile: the engine's own profile applies"
                .into(),
        );
    }
    reduced
}

/// Returns whether a folder is writable, or can be created.
fn is_writable(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|folder| folder.exists());
    existing.is_some_and(|folder| folder.is_dir() && access(folder, Access::WRITE_OK).is_ok())
}

async fn run(sessions: &Sessions, settings: &Settings) -> Run {
    let request = RunRequest {
        code: "print(6*7)".into(),
        servers: Vec::new(),
        timeout: settings.timeout.value,
        session: RunRequest::THROW_AWAY.into(),
        clamped: None,
    };
    let began = Instant::now();
    // A diagnosis shows no progress.
    let (progress, _) = mpsc::channel(1);
    let outcome = sessions.run(request, Caller::without_answers(progress, CancellationToken::new())).await;
    Run {
        ok: outcome.status == Status::Success && outcome.stdout.text.trim() == "42",
        milliseconds: began.elapsed().as_millis(),
        code_milliseconds: outcome.elapsed.as_millis(),
        error: outcome.error,
        notices: outcome.notices,
    }
}

fn policy_state(policy: &Policy, upstream: &Upstream) -> PolicyState {
    let file = policy.source().path().to_path_buf();
    let none = PolicyState { file, rules: None, error: None, warnings: Vec::new() };
    match policy.rules() {
        Ok(None) => none,
        Err(error) => PolicyState { error: Some(error.to_string()), ..none },
        Ok(Some(rules)) => {
            let snapshot = upstream.snapshot();
            let names = snapshot.servers.iter().chain(&snapshot.skipped).map(|server| &*server.name);
            let warnings = rules.warnings(&names.collect::<Vec<_>>());
            PolicyState { rules: Some(rules.len()), warnings, ..none }
        }
    }
}

/// Checks the whole log.
async fn audit_state(settings: &Settings, audit: &Audit) -> AuditState {
    let folder = folder_in(&settings.state_dir.value);
    let (mode, error) = (settings.audit.value.name(), audit.trouble().map(|error| error.to_string()));
    let in_thread = folder.clone();
    let checked = tokio::task::spawn_blocking(move || verify(&in_thread, &[])).await;
    let (lines, bytes, problems) = match checked.map_err(std::io::Error::other).and_then(|checked| checked) {
        Ok(checked) => {
            let problems = checked.problems.iter().map(|one| format!("{}: {}", one.place, one.what));
            (checked.lines, checked.bytes, problems.collect())
        }
        Err(error) => (0, 0, vec![format!("{}: {error}", folder.display())]),
    };
    AuditState { folder, mode, error, lines, bytes, problems }
}

async fn http(settings: &Settings) -> Http {
    let listeners = listeners(&settings.state_dir).await.into_iter().map(|listening| {
        let certificate_expires = listening.certificate.as_deref().and_then(expiry_of);
        Listener { listening, certificate_expires }
    });
    let (tokens, error) = match Tokens::at(&settings.state_dir).list() {
        Ok(TokenList { kept: tokens, unusable }) => {
            let valid: Vec<_> = tokens.iter().filter(|token| token.is_valid()).collect();
            let next_expiry = valid.iter().filter_map(|token| token.expires).min();
            let with = |scope| valid.iter().filter(|token| token.scopes.has(scope)).count();
            let (console, approve) = (with(Scope::Console), with(Scope::Approve));
            let (valid, all) = (valid.len(), tokens.len());
            let error = unusable.first().map(|Unusable { id, why }| {
                let tokens = if unusable.len() == 1 { "token" } else { "tokens" };
                format!("{} {tokens} cannot be used; {id}: {why}", unusable.len())
            });
            (TokenCount { valid, expired: all - valid, console, approve, next_expiry }, error)
        }
        Err(error) => (TokenCount::default(), Some(error.to_string())),
    };
    Http { listeners: listeners.collect(), tokens, error }
}

fn store() -> Store {
    let images = image_resolver(false);
    let store = images.store();
    let usage = store.usage().unwrap_or_default();
    Store {
        folder: store.dir().to_path_buf(),
        images: store.list().map_or(0, |images| images.len()),
        bytes: usage.total(),
    }
}

async fn logins_state(upstream: &Upstream) -> LoginsState {
    let why = upstream.logins().keyring_state().await.map(|why| why.to_string());
    LoginsState { kept: if why.is_none() { "keyring" } else { "files" }, why }
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
        // The others are about what is skipped.
        warnings: snapshot.warnings_of_files().map(ToString::to_string).collect(),
    }
}
