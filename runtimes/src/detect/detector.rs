//! Chooses the runtime: the first one that ran a probe sandbox, or one of a fleet.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::driver::AnyDriver;
use crate::exec;
use crate::machine::{MachinePolicy, Machines};
use crate::refusal::Refusal;
use crate::runtime::{RuntimeChoice, RuntimeKind, Target};
use crate::spec::RootFs;
use crate::state::Instance;

use super::cache::{Cache, Remembered, Setback};
use super::candidate::{Candidate, Trial, with_path};
use super::choice::{Choice, NothingWorks, Probe, ProbeReport, Verdict};
use super::fleet::Fleet;
use super::provider::{RootProvider, WantedImage, WantedRoot};

/// How long a choice is remembered, and how long one with a fallback root.
const CACHE_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
const FALLBACK_CACHE_AGE: Duration = Duration::from_secs(3600);

/// How often, in which time, detection runs again because the engine was gone at a launch.
const ABSENCES: (u32, Duration) = (3, Duration::from_secs(10));

/// Finds the runtime to use, once, and again when that runtime fails.
#[derive(Debug)]
pub struct Detector<I> {
    choice: RuntimeChoice,
    roots: Vec<WantedRoot<I>>,
    cache: Cache,
    state: Mutex<Chosen>,
    fleet: Option<Fleet<I>>,
    machines: Arc<Machines>,
}

#[derive(Debug, Default)]
struct Chosen {
    chosen: Option<Choice>,
    /// How often the chosen engine was gone at a launch, and since when this is counted.
    absences: (u32, Option<Instant>),
    /// Whether `chosen` worked in an earlier run of the bridge and was not tried in this one.
    from_cache: bool,
    /// The runtimes that did not launch a sandbox in this process although their probe ran.
    set_aside: HashMap<Target, Refusal>,
}

impl Chosen {
    fn may_choose_again(&mut self) -> bool {
        let (count, since) = &mut self.absences;
        if since.is_none_or(|since| since.elapsed() > ABSENCES.1) {
            (*count, *since) = (0, Some(Instant::now()));
        }
        *count += 1;
        *count <= ABSENCES.0
    }
}

impl<I: WantedImage> Detector<I> {
    /// Returns a detector; `roots` in order of preference, `cache_dir` for what is remembered between runs.
    pub fn new(
        choice: RuntimeChoice,
        roots: Vec<WantedRoot<I>>,
        security_options: &[String],
        machines: MachinePolicy,
        cache_dir: Option<PathBuf>,
    ) -> Self {
        let names: Vec<String> = roots.iter().map(ToString::to_string).collect();
        let key = format!("{choice} {names:?} {:?} {security_options:?}", machines.share);
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

    /// Returns the runtime to use. The first call probes, and concurrent calls wait for its result.
    ///
    /// The future has to run to its end, so that the sandbox of a probe is removed; `stop` makes it short.
    pub async fn choose<P: RootProvider<Image = I> + Clone + 'static>(
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
        // When docker's client switches to another context, new sandboxes follow.
        if let Some(choice) = state.chosen.as_ref().filter(|choice| choice.runtime.is_current()) {
            self.machines.about_to_use(&choice.runtime).await;
            return Ok(choice.clone());
        }
        if state.set_aside.is_empty()
            && let Some(remembered) = self.cache.read()
        {
            let of_today = tokio::select! {
                of_today = self.with_root_of_today(remembered, provider) => of_today,
                () = stop.cancelled() => return Err(NothingWorks { tried: Vec::new() }),
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

    /// Returns a remembered choice with the image that its name stands for now; None when there is none.
    async fn with_root_of_today<P: RootProvider<Image = I>>(
        &self,
        remembered: Remembered,
        provider: &P,
    ) -> Option<Choice> {
        let Remembered { mut choice, rank, lease } = remembered;
        choice.rank = rank;
        if let Some(lease) = lease {
            let WantedRoot::Image(image) = self.roots.get(rank)? else { return None };
            let provided = provider.known_root(image, &lease).await?;
            choice.root = RootFs::Leased(provided.lease);
            choice.env = with_path(provided.env);
        }
        Some(choice)
    }

    /// Forgets a choice that did not launch a sandbox. Returns whether to choose again: the choice was only remembered from an
    /// earlier run, or other runtimes may work.
    pub async fn reject(&self, choice: &Choice, refusal: Refusal) -> bool {
        if let Some(fleet) = &self.fleet {
            return fleet.reject(choice, &refusal);
        }
        let mut state = self.state.lock().await;
        if state.chosen.as_ref() != Some(choice) {
            // Another call has rejected it already; the choice since then may work.
            return true;
        }
        state.chosen = None;
        if choice.runtime.shared.is_some() {
            self.machines.shares.forget(&choice.runtime);
        }
        self.cache.drop_choice(choice, &refusal);
        // The engine, or its machine, can be started again, or named in the error.
        if refusal.is_absence(choice.runtime.remote) && state.may_choose_again() {
            state.from_cache = false;
            tracing::info!(runtime = %choice.runtime, %refusal, "the engine does not answer any more; choosing again");
            return true;
        }
        if std::mem::take(&mut state.from_cache) {
            tracing::info!(runtime = %choice.runtime, %refusal, "the remembered runtime does not work; choosing again");
            return true;
        }
        let first_time = state.set_aside.insert(choice.runtime.target(), refusal.clone()).is_none();
        let another = first_time && self.choice == RuntimeChoice::Auto;
        if another {
            tracing::warn!(runtime = %choice.runtime, %refusal, "the runtime did not launch a sandbox; trying the next runtime");
        } else {
            // Nothing else to try now; the next call tries everything again.
            state.set_aside.clear();
        }
        another
    }

    /// Returns as soon as the engine of a slow launch does not answer, when it is one of several. Never ends otherwise.
    pub async fn stalls(&self, choice: &Choice) -> Refusal {
        match &self.fleet {
            Some(fleet) => fleet.stalls(choice).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for the checks of engines in the background, which end soon once their calls are cancelled.
    pub async fn close(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.close().await;
        }
    }

    /// Returns the last runtime that did not launch a sandbox although its probe ran, for diagnosis.
    pub fn setback(&self) -> Option<Setback> {
        self.cache.setback()
    }

    async fn search<P: RootProvider<Image = I>>(
        &self,
        trial: &Trial<'_, P>,
        set_aside: &HashMap<Target, Refusal>,
    ) -> Result<Choice, NothingWorks> {
        // A machine is made only when nothing else works: that downloads gigabytes.
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

    async fn search_with<P: RootProvider<Image = I>>(
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
                    None => candidate.probe(root, rank, trial).await,
                };
                match verdict {
                    Ok(mut choice) => {
                        choice.refused_options = refused_options(trial.probe, &tried);
                        return Ok(choice);
                    }
                    Err(refusal) => {
                        tracing::debug!(runtime = %candidate.target, %root, %refusal, "the runtime does not work");
                        if trial.stop.is_cancelled() {
                            return Err(NothingWorks { tried });
                        }
                        tried.push((candidate.target.clone(), root.to_string(), refusal));
                    }
                }
            }
        }
        Err(NothingWorks { tried })
    }

    /// Tries every runtime with the roots in order, for diagnosis. Nothing is remembered.
    pub async fn examine<P: RootProvider<Image = I>>(
        &self,
        probe: &Probe,
        provider: &P,
        instance: &Arc<Instance>,
        stop: &CancellationToken,
    ) -> Vec<ProbeReport> {
        // A diagnosis must not download a machine.
        let machines = self.machines.without_making_any();
        let _in_use = machines.use_engines().await;
        let trial = Trial { machines: &machines, probe, provider, instance, stop };
        let mut reports = Vec::new();
        for mut candidate in self.candidates() {
            let (root, verdict) = match candidate.probe_all(&self.roots, &trial).await {
                Some(Ok(choice)) => (choice.asked.clone(), Verdict::Works(Box::new(choice))),
                Some(Err((root, refusal))) => (root, Verdict::Refused(refusal)),
                None => continue,
            };
            let version = candidate.version().await;
            let machine = match &candidate.program {
                Some(program)
                    if candidate.target == RuntimeKind::Podman.into() && may_be_in_a_machine(&verdict) =>
                {
                    machines.report(program).await
                }
                _ => None,
            };
            let (mut share, mut own_profile, mut share_mechanism) = (None, None, None);
            if let Verdict::Works(choice) = &verdict {
                let driver = AnyDriver::new(choice.runtime.clone());
                own_profile = Some(driver.has_own_profile());
                share_mechanism = Some(driver.share_mechanism(probe.template.user));
                if let (AnyDriver::Engine(driver), RootFs::Image(image), true) =
                    (&driver, &choice.root, choice.runtime.remote)
                {
                    share = machines.shares.report(driver, image, instance).await;
                }
            }
            let hint = match &verdict {
                Verdict::Works(_) => None,
                Verdict::Refused(refusal) => Some(refusal.hint(candidate.target.kind).into_owned()),
            };
            let Candidate { target: Target { kind, connection }, program, .. } = candidate;
            reports.push(ProbeReport {
                kind,
                connection,
                program,
                version,
                root,
                verdict,
                machine,
                share,
                own_profile,
                share_mechanism,
                hint,
            });
        }
        reports
    }

    fn candidates(&self) -> Vec<Candidate> {
        match &self.choice {
            RuntimeChoice::Auto => RuntimeKind::ALL.map(|kind| Candidate::in_path(kind.into())).into(),
            RuntimeChoice::Named(targets) => targets.iter().cloned().map(Candidate::in_path).collect(),
            RuntimeChoice::Program(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // A program of an unknown name is most likely an OCI runtime.
                let kind = RuntimeKind::of_program(&name).unwrap_or(RuntimeKind::Runc);
                vec![Candidate { target: kind.into(), program: exec::find_program(path), engine: None }]
            }
        }
    }
}

/// Returns the attempts that failed where the security options of the user may be the reason.
fn refused_options(probe: &Probe, tried: &[(Target, String, Refusal)]) -> Vec<(Target, Refusal)> {
    let options = &probe.template.security_options;
    let is_of_options = |target: &Target, refusal: &Refusal| {
        let is_engine = matches!(target.kind, RuntimeKind::Podman | RuntimeKind::Docker);
        is_engine && !options.is_empty() && matches!(refusal, Refusal::Other { .. })
    };
    let found = tried.iter().filter(|(target, _, refusal)| is_of_options(target, refusal));
    let mut found: Vec<_> = found.map(|(target, _, refusal)| (target.clone(), refusal.clone())).collect();
    found.dedup();
    found
}

/// Returns whether the engine of podman may be in a machine, or should be.
fn may_be_in_a_machine(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Works(choice) => choice.runtime.remote && choice.runtime.address.variables.is_empty(),
        Verdict::Refused(refusal) => {
            matches!(refusal, Refusal::MachineMissing { .. } | Refusal::MachineFailed { .. })
        }
    }
}
