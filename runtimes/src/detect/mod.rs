//! Which runtime is used: the first one that really ran a probe sandbox.
//!
//! Nothing is looked at before the first execution. `candidate` tries one runtime with one root, `cache` keeps a good
//! choice on disk between runs, `fleet` spreads sandboxes over several engines, this file chooses among the rest.

mod cache;
mod candidate;
mod fleet;

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::driver::AnyDriver;
use crate::exec;
use crate::machine::{MachinePolicy, MachineReport, Machines, ShareReport};
use crate::plan::HeldLimits;
use crate::refusal::Refusal;
use crate::runtime::{RuntimeChoice, RuntimeId, RuntimeKind, Target};
use crate::spec::{RootFs, SandboxSpec};
use crate::state::Instance;

use cache::Cache;
pub use cache::Setback;
use candidate::{Candidate, Trial};
use fleet::Fleet;

/// A good choice is believed this long, one that had to make do with another root not quite so long.
const CACHE_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
const FALLBACK_CACHE_AGE: Duration = Duration::from_secs(3600);

/// An engine that comes and goes is looked for this often in this time.
const ABSENCES: (u32, Duration) = (3, Duration::from_secs(10));

/// Gives root filesystems to runtimes that cannot fetch images.
pub trait RootProvider: Send + Sync {
    /// The unpacked image; the refusal is [`Refusal::ImageMissing`] when it is not to be had.
    fn root(&self, reference: &str) -> impl Future<Output = Result<ProvidedRoot, Refusal>> + Send;

    /// What the reference stands for now, as far as it is known without asking anybody who takes time. `remembered` is the
    /// folder that it stood for earlier.
    fn known_root(&self, reference: &str, remembered: &Path) -> impl Future<Output = KnownRoot> + Send;

    /// Something slow has begun, in a line for whoever waits.
    fn announce(&self, line: &str);
}

/// What is known of an image without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownRoot {
    /// It is here.
    Here(ProvidedRoot),
    /// Only [`RootProvider::root`] can tell; what it was earlier is as good as anything.
    Unsure,
    /// What it was earlier is not what it is now.
    Gone,
}

/// An unpacked image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedRoot {
    /// The folder that holds it.
    pub directory: PathBuf,
    /// The environment that the image sets.
    pub env: Vec<(String, String)>,
}

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
    pub asked: RootFs,
    /// Environment of the image where the runtime does not know it.
    pub env: Vec<(String, String)>,
    /// Volumes that the image wants and the engine would make.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Which mechanism holds each limit.
    pub held: HeldLimits,
    /// Whether the root is not the one that was wanted first.
    pub fallback: bool,
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
    /// The root it was tried with.
    #[serde(serialize_with = "as_text")]
    pub root: RootFs,
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

/// A root as one would name it.
fn as_text<S: serde::Serializer>(root: &RootFs, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(root)
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
    pub tried: Vec<(Target, RootFs, Refusal)>,
}

impl NothingWorks {
    /// Whether some runtime would work if it had the image.
    pub fn lacks_image(&self) -> bool {
        self.tried.iter().any(|(_, _, refusal)| refusal.is_image())
    }

    fn lacks_machine(&self) -> bool {
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

/// Finds the runtime to use, once, and again when it fails.
#[derive(Debug)]
pub struct Detector {
    choice: RuntimeChoice,
    roots: Vec<RootFs>,
    cache: Cache,
    state: Mutex<State>,
    fleet: Option<Fleet>,
    machines: Arc<Machines>,
}

#[derive(Debug, Default)]
struct State {
    chosen: Option<Choice>,
    /// How often lately what had been chosen was gone at a launch, and since when this is counted.
    absences: (u32, Option<Instant>),
    /// Whether `chosen` worked in an earlier run of the bridge and was not tried in this one.
    from_cache: bool,
    /// What failed to launch in this process although its probe had run.
    set_aside: HashMap<Target, Refusal>,
}

impl State {
    fn may_look_again(&mut self) -> bool {
        let (count, since) = &mut self.absences;
        if since.is_none_or(|since| since.elapsed() > ABSENCES.1) {
            (*count, *since) = (0, Some(Instant::now()));
        }
        *count += 1;
        *count <= ABSENCES.0
    }
}

/// A remembered choice with the image as it is now: its name may stand for another one since, or for none.
async fn with_root_of_today<P: RootProvider>(mut choice: Choice, provider: &P) -> Option<Choice> {
    if let (RootFs::Image(name) | RootFs::Source(name), RootFs::Directory(remembered)) =
        (&choice.asked, &choice.root)
    {
        match provider.known_root(name, remembered).await {
            KnownRoot::Here(provided) => {
                choice.root = RootFs::Directory(provided.directory);
                choice.env = candidate::with_path(provided.env);
            }
            KnownRoot::Unsure => {}
            KnownRoot::Gone => return None,
        }
    }
    Some(choice)
}

impl Detector {
    /// A detector for this wish; `roots` in order of preference, `cache_dir` for what is remembered between runs.
    pub fn new(
        choice: RuntimeChoice,
        roots: Vec<RootFs>,
        machines: MachinePolicy,
        cache_dir: Option<PathBuf>,
    ) -> Self {
        let key = serde_json::to_string(&(&choice, &roots, &machines.share)).unwrap_or_default();
        let machines = Arc::new(Machines::new(machines, cache_dir.clone()));
        let cache = Cache::new(cache_dir, key);
        let fleet = match &choice {
            RuntimeChoice::Named(targets) if targets.len() > 1 => {
                Some(Fleet::new(targets, &roots, &machines))
            }
            _ => None,
        };
        Self { choice, roots, cache, state: Mutex::default(), fleet, machines }
    }

    /// The runtime to use; probes at the first call, while concurrent ones wait for the result.
    ///
    /// A probe ends its sandbox before this returns, so the future has to be driven to its end: `stop` makes it short.
    pub async fn choose<P: RootProvider + Clone + 'static>(
        &self,
        probe: &Probe,
        provider: &P,
        instance: &Arc<Instance>,
        stop: &CancellationToken,
    ) -> Result<Choice, NothingWorks> {
        if let Some(fleet) = &self.fleet {
            let choice = fleet.choose(probe, provider, instance, stop).await?;
            self.machines.about_to_use(&choice.runtime).await;
            return Ok(choice);
        }
        let trial = Trial { machines: &self.machines, probe, provider, instance, stop };
        let mut state = self.state.lock().await;
        // Who tells docker's client to use another context means what is started from then on.
        if let Some(choice) = state.chosen.as_ref().filter(|choice| choice.runtime.is_current()) {
            self.machines.about_to_use(&choice.runtime).await;
            return Ok(choice.clone());
        }
        if state.set_aside.is_empty()
            && let Some(choice) = self.cache.read()
        {
            let of_today = tokio::select! {
                of_today = with_root_of_today(choice.clone(), provider) => of_today,
                () = stop.cancelled() => Some(choice),
            };
            if let Some(choice) = of_today {
                self.machines.about_to_use(&choice.runtime).await;
                self.machines.adopt(&choice.runtime);
                state.chosen = Some(choice.clone());
                state.from_cache = true;
                return Ok(choice);
            }
        }
        let in_use = self.machines.use_engines().await;
        let found = self.search(&trial, &state.set_aside).await;
        drop(in_use);
        if found.is_err() {
            state.set_aside.clear();
        }
        let choice = found?;
        self.cache.write(&choice, if choice.fallback { FALLBACK_CACHE_AGE } else { CACHE_AGE });
        self.machines.adopt(&choice.runtime);
        state.chosen = Some(choice.clone());
        Ok(choice)
    }

    /// The choice did not launch: forget it. True when choosing again is worth it: it was only remembered from an earlier
    /// run, or other runtimes may be tried.
    pub async fn reject(&self, choice: &Choice, refusal: Refusal) -> bool {
        if let Some(fleet) = &self.fleet {
            return fleet.reject(choice, &refusal);
        }
        let mut state = self.state.lock().await;
        if state.chosen.as_ref() != Some(choice) {
            // Another call has said so already; what is chosen since then may do.
            return true;
        }
        state.chosen = None;
        if choice.runtime.shared.is_some() {
            self.machines.shares.forget(&choice.runtime);
        }
        self.cache.drop_choice(choice, &refusal);
        // An engine that was there a while ago, or its machine, can be brought up again, or be named as what is missing.
        if refusal.is_absence(choice.runtime.remote) && state.may_look_again() {
            state.from_cache = false;
            tracing::info!(runtime = %choice.runtime, %refusal, "what worked a while ago is gone; looking again");
            return true;
        }
        if std::mem::take(&mut state.from_cache) {
            tracing::info!(runtime = %choice.runtime, %refusal, "what worked last time does not; looking again");
            return true;
        }
        let first_time = state.set_aside.insert(choice.runtime.target(), refusal.clone()).is_none();
        let another = first_time && self.choice == RuntimeChoice::Auto;
        if another {
            tracing::warn!(runtime = %choice.runtime, %refusal, "did not launch a sandbox; trying the next runtime");
        } else {
            // Nothing else to try now; the next call may find a mended host.
            state.set_aside.clear();
        }
        another
    }

    /// Why a launch of this choice that takes long is not worth waiting for: its engine is one of several and does not
    /// answer. Never ends otherwise.
    pub async fn stalls(&self, choice: &Choice) -> Refusal {
        match &self.fleet {
            Some(fleet) => fleet.stalls(choice).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for what goes on behind choices that were made. It ends soon once the tokens of those are cancelled.
    pub async fn close(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.close().await;
        }
    }

    /// What failed to launch lately although its probe had run, for diagnosis.
    pub fn setback(&self) -> Option<Setback> {
        self.cache.setback()
    }

    async fn search<P: RootProvider>(
        &self,
        trial: &Trial<'_, P>,
        set_aside: &HashMap<Target, Refusal>,
    ) -> Result<Choice, NothingWorks> {
        // A machine is made only when nothing else works: it downloads gigabytes.
        let careful = self.machines.without_making_any();
        let found = self.search_with(&Trial { machines: &careful, ..*trial }, set_aside).await;
        match found {
            Err(nothing)
                if nothing.lacks_machine() && self.machines.may_make_one() && !trial.stop.is_cancelled() =>
            {
                self.search_with(trial, set_aside).await
            }
            found => found,
        }
    }

    async fn search_with<P: RootProvider>(
        &self,
        trial: &Trial<'_, P>,
        set_aside: &HashMap<Target, Refusal>,
    ) -> Result<Choice, NothingWorks> {
        let mut tried = Vec::new();
        let mut candidates = self.candidates();
        for (rank, root) in self.roots.iter().enumerate() {
            for candidate in &mut candidates {
                let verdict = match set_aside.get(&candidate.target) {
                    Some(refusal) => Err(refusal.clone()),
                    None => candidate.probe(root, trial).await,
                };
                match verdict {
                    Ok(choice) => return Ok(Choice { fallback: rank > 0, ..choice }),
                    Err(refusal) => {
                        tracing::debug!(runtime = %candidate.target, %root, %refusal, "refused");
                        if trial.stop.is_cancelled() {
                            return Err(NothingWorks { tried });
                        }
                        tried.push((candidate.target.clone(), root.clone(), refusal));
                    }
                }
            }
        }
        Err(NothingWorks { tried })
    }

    /// Tries every runtime with the roots in order, for diagnosis; nothing is remembered.
    pub async fn examine<P: RootProvider>(
        &self,
        probe: &Probe,
        provider: &P,
        instance: &Arc<Instance>,
        stop: &CancellationToken,
    ) -> Vec<ProbeReport> {
        // A question is no reason to download a machine.
        let machines = self.machines.without_making_any();
        let _in_use = machines.use_engines().await;
        let trial = Trial { machines: &machines, probe, provider, instance, stop };
        let mut reports = Vec::new();
        for mut candidate in self.candidates() {
            let mut first = None;
            let mut works = None;
            for (rank, root) in self.roots.iter().enumerate() {
                match candidate.probe(root, &trial).await {
                    Ok(choice) => {
                        works = Some(Choice { fallback: rank > 0, ..choice });
                        break;
                    }
                    Err(refusal) => {
                        first.get_or_insert((root.clone(), refusal));
                    }
                }
            }
            let version = candidate.version().await;
            let (root, verdict) = match (works, first) {
                (Some(choice), _) => (choice.asked.clone(), Verdict::Works(Box::new(choice))),
                (None, Some((root, refusal))) => (root, Verdict::Refused(refusal)),
                (None, None) => continue,
            };
            let machine = match (&candidate.program, &candidate.target) {
                (Some(program), Target { kind: RuntimeKind::Podman, connection: None }) => {
                    machines.report(program, &verdict).await
                }
                _ => None,
            };
            let (mut share, mut own_profile) = (None, None);
            if let Verdict::Works(choice) = &verdict {
                let driver = AnyDriver::new(choice.runtime.clone());
                own_profile = Some(driver.has_own_profile());
                if let (AnyDriver::Engine(driver), RootFs::Image(image), true) =
                    (&driver, &choice.root, choice.runtime.remote)
                {
                    share = machines.shares.report(driver, image, instance).await;
                }
            }
            let hint = match &verdict {
                Verdict::Works(_) => None,
                Verdict::Refused(refusal) => Some(refusal.hint().into_owned()),
            };
            reports.push(ProbeReport {
                machine,
                share,
                own_profile,
                hint,
                kind: candidate.target.kind,
                connection: candidate.target.connection.clone(),
                program: candidate.program.clone(),
                version,
                root,
                verdict,
            });
        }
        reports
    }

    fn candidates(&self) -> Vec<Candidate> {
        match &self.choice {
            RuntimeChoice::Auto => {
                RuntimeKind::ALL.into_iter().map(Target::from).map(Candidate::in_path).collect()
            }
            RuntimeChoice::Named(targets) => targets.iter().cloned().map(Candidate::in_path).collect(),
            RuntimeChoice::Program(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // A program of an unknown name is taken for what most of them are: an OCI runtime.
                let kind = RuntimeKind::of_program(&name).unwrap_or(RuntimeKind::Runc);
                vec![Candidate { target: kind.into(), program: exec::find_program(path), engine: None }]
            }
        }
    }
}
