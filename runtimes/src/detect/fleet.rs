//! Spreads sandboxes over several engines: each new one goes to the least loaded engine that answers.
//!
//! An engine that fails is set aside for a while, longer each time. It is tried again after that, or at once when no other
//! engine is left. As long as another engine works, nobody waits for it.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::candidate::{Candidate, Trial, ask_engine};
use super::choice::{Choice, NothingWorks, Probe};
use super::provider::{RootProvider, WantedImage, WantedRoot};
use crate::driver::AnyDriver;
use crate::engine::EngineInfo;
use crate::machine::Machines;
use crate::refusal::Refusal;
use crate::runtime::{RuntimeId, Target};
use crate::state::Instance;

/// The time that one engine of several has to report its load.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// How long a first try of an engine is waited for while another engine works: longer than [`ASK_LIMIT`].
const PATIENCE: Duration = Duration::from_secs(6);
/// How long the reported load of an engine counts as current.
const FRESH: Duration = Duration::from_millis(200);
/// How long an engine that failed is set aside, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// What a cluster counts as beside engines.
const CLUSTER_CPUS: u32 = 64;

#[derive(Debug)]
pub(super) struct Fleet<I> {
    engines: Vec<Arc<Engine>>,
    roots: Arc<[WantedRoot<I>]>,
    machines: Arc<Machines>,
    /// The tasks that check an engine; each runs to its end, so that its sandbox is removed.
    checks: TaskTracker,
}

#[derive(Debug)]
struct Engine {
    target: Target,
    /// Held while the engine is checked, so that it is checked once at a time.
    asking: Mutex<()>,
    state: StdMutex<EngineState>,
}

#[derive(Debug, Default)]
struct EngineState {
    choice: Option<Choice>,
    load: Load,
    asked: Option<Instant>,
    aside: Option<Aside>,
    /// How long the engine is set aside after its next failure.
    pause: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Aside {
    refusal: Refusal,
    root: String,
    until: Instant,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Load {
    running: u32,
    /// Sandboxes that were sent to it since it reported.
    sent: u32,
    cpus: u32,
}

impl Load {
    /// Returns the number of containers for each processor.
    fn density(self) -> f64 {
        f64::from(self.running + self.sent) / f64::from(self.cpus.max(1))
    }
}

impl<I: WantedImage> Fleet<I> {
    pub(super) fn new(targets: &[Target], roots: &[WantedRoot<I>], machines: &Arc<Machines>) -> Self {
        let engine = |target: &Target| {
            Arc::new(Engine { target: target.clone(), asking: Mutex::default(), state: StdMutex::default() })
        };
        Self {
            engines: targets.iter().map(engine).collect(),
            roots: roots.into(),
            machines: Arc::clone(machines),
            checks: TaskTracker::new(),
        }
    }

    pub(super) async fn choose<P: RootProvider<Image = I> + Clone + 'static>(
        &self,
        probe: &Probe,
        provider: &P,
        instance: &Arc<Instance>,
        stop: &CancellationToken,
    ) -> Result<Choice, NothingWorks> {
        let check = Check {
            machines: Arc::clone(&self.machines),
            roots: Arc::clone(&self.roots),
            probe: probe.clone(),
            provider: provider.clone(),
            instance: Arc::clone(instance),
            stop: stop.clone(),
        };
        let (due, later): (Vec<_>, Vec<_>) = self.engines.iter().partition(|engine| engine.is_due());
        self.check_all(due, &check).await;
        if let Some(choice) = self.least_loaded() {
            return Ok(choice);
        }
        if !stop.is_cancelled() {
            // The others may work again.
            self.check_all(later, &check).await;
        }
        if stop.is_cancelled() {
            return Err(NothingWorks { tried: Vec::new() });
        }
        self.least_loaded().ok_or_else(|| NothingWorks { tried: self.refusals() })
    }

    /// Checks these engines. Returns when the result is known for all, or for enough of them to go on.
    async fn check_all<P: RootProvider<Image = I> + Clone + 'static>(
        &self,
        engines: Vec<&Arc<Engine>>,
        check: &Check<P>,
    ) {
        let (back, awaited): (Vec<_>, Vec<_>) = engines.into_iter().partition(|engine| engine.is_aside());
        let begin = |engine: &Arc<Engine>| {
            let (engine, check) = (Arc::clone(engine), check.clone());
            self.checks.spawn(async move { engine.check(&check).await })
        };
        let mut awaited: FuturesUnordered<_> = awaited.into_iter().map(begin).collect();
        let mut back: FuturesUnordered<_> = back.into_iter().map(begin).collect();
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let mut patient = true;
        loop {
            let all = awaited.is_empty() && back.is_empty();
            let enough = awaited.is_empty() || !patient;
            if all || (enough && self.any_works()) {
                return;
            }
            tokio::select! {
                Some(_) = awaited.next() => {}
                Some(_) = back.next() => {}
                () = &mut patience, if patient => patient = false,
            }
        }
    }

    fn any_works(&self) -> bool {
        self.engines.iter().any(|engine| engine.lock().choice.is_some())
    }

    /// Returns as soon as the engine of a sandbox that takes long to start does not answer.
    pub(super) async fn stalls(&self, choice: &Choice) -> Refusal {
        loop {
            tokio::time::sleep(ASK_LIMIT).await;
            if let Err(refusal) = load_of(&choice.runtime).await {
                return refusal;
            }
        }
    }

    pub(super) async fn close(&self) {
        self.checks.close();
        self.checks.wait().await;
    }

    /// Sets aside an engine that did not start a sandbox. Returns whether another one works.
    pub(super) fn reject(&self, choice: &Choice, refusal: &Refusal) -> bool {
        let target = choice.runtime.target();
        for engine in self.engines.iter().filter(|engine| engine.target == target) {
            engine.set_aside(choice.asked.clone(), refusal.clone());
        }
        self.any_works()
    }

    fn least_loaded(&self) -> Option<Choice> {
        // Compared and counted under one lock: the next call sees what was sent.
        let mut states: Vec<_> = self.engines.iter().map(|engine| engine.lock()).collect();
        let working = states.iter_mut().filter(|state| state.choice.is_some());
        // The wanted image matters more than a free processor.
        let key =
            |state: &EngineState| (state.choice.as_ref().is_some_and(|it| it.fallback), state.load.density());
        let least =
            working.min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal))?;
        least.load.sent += 1;
        least.choice.clone()
    }

    fn refusals(&self) -> Vec<(Target, String, Refusal)> {
        let aside = |engine: &Arc<Engine>| {
            let state = engine.lock();
            let Aside { refusal, root, .. } = state.aside.as_ref()?;
            Some((engine.target.clone(), root.clone(), refusal.clone()))
        };
        self.engines.iter().filter_map(aside).collect()
    }
}

#[derive(Clone)]
struct Check<P: RootProvider> {
    machines: Arc<Machines>,
    roots: Arc<[WantedRoot<P::Image>]>,
    probe: Probe,
    provider: P,
    instance: Arc<Instance>,
    stop: CancellationToken,
}

impl Engine {
    fn lock(&self) -> std::sync::MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) -> bool {
        self.lock().aside.as_ref().is_none_or(|aside| aside.until <= Instant::now())
    }

    fn is_aside(&self) -> bool {
        self.lock().aside.is_some()
    }

    fn is_fresh(&self) -> bool {
        self.lock().asked.is_some_and(|asked| asked.elapsed() < FRESH)
    }

    fn set_aside(&self, root: String, refusal: Refusal) {
        let mut state = self.lock();
        let pause = state.pause.unwrap_or(FIRST_PAUSE);
        tracing::warn!(engine = %self.target, %refusal, ?pause, "set an engine aside");
        let until = Instant::now() + pause;
        *state = EngineState {
            aside: Some(Aside { refusal, root, until }),
            pause: Some((pause * 2).min(LONGEST_PAUSE)),
            asked: Some(Instant::now()),
            ..EngineState::default()
        };
    }

    /// Checks the engine: by its load when it has run a sandbox before, else by a sandbox.
    async fn check<P: RootProvider>(&self, check: &Check<P>) {
        let _asking = self.asking.lock().await;
        if self.is_fresh() {
            return;
        }
        let _in_use = check.machines.use_engines().await;
        let known = self.lock().choice.clone().filter(|choice| choice.runtime.is_current());
        match known {
            Some(choice) => self.ask(&choice).await,
            None => self.try_out(check).await,
        }
    }

    async fn ask(&self, choice: &Choice) {
        match load_of(&choice.runtime).await {
            Ok(load) => {
                let mut state = self.lock();
                state.load = load;
                state.asked = Some(Instant::now());
            }
            Err(refusal) => self.set_aside(choice.asked.clone(), refusal),
        }
    }

    async fn try_out<P: RootProvider>(&self, check: &Check<P>) {
        let Check { machines, roots, probe, provider, instance, stop } = check;
        let trial = Trial { machines, probe, provider, instance, stop };
        let mut candidate = Candidate::in_path(self.target.clone());
        match candidate.probe_all(roots, &trial).await {
            Some(Ok(choice)) => {
                let again = if self.is_aside() { "works again" } else { "works" };
                tracing::info!(root = %choice.asked, "{} {again}", self.target);
                let info = candidate.engine.as_ref().and_then(|info| info.as_ref().ok());
                *self.lock() = EngineState {
                    choice: Some(choice),
                    load: info.map(Load::from).unwrap_or_default(),
                    asked: Some(Instant::now()),
                    ..EngineState::default()
                };
            }
            Some(Err((root, refusal))) if !stop.is_cancelled() => self.set_aside(root, refusal),
            _ => {}
        }
    }
}

impl From<&EngineInfo> for Load {
    fn from(info: &EngineInfo) -> Self {
        Self { running: info.running, sent: 0, cpus: info.cpus }
    }
}

async fn load_of(runtime: &RuntimeId) -> Result<Load, Refusal> {
    match AnyDriver::new(runtime.clone()) {
        AnyDriver::Engine(driver) => Ok(Load::from(&ask_engine(&driver, ASK_LIMIT).await?)),
        // The scheduler of a cluster chooses among many processors; few of them are ours.
        AnyDriver::Kube(driver) => match driver.list_owned().await {
            Ok(pods) => Ok(Load {
                running: u32::try_from(pods.len()).unwrap_or(u32::MAX),
                sent: 0,
                cpus: CLUSTER_CPUS,
            }),
            Err(error) => Err(driver.refusal_of(&error)),
        },
        // Nothing counts their containers.
        AnyDriver::Oci(_) => Ok(Load::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::provider::EngineImage;
    use super::*;
    use crate::plan::{HeldLimits, Mechanism};
    use crate::runtime::{CgroupMode, RuntimeKind};
    use crate::spec::RootFs;

    fn choice(name: &str) -> Choice {
        let target = Target { kind: RuntimeKind::Docker, connection: Some(name.into()) };
        let held = Mechanism::Cgroup;
        Choice {
            runtime: RuntimeId::at(&target, "/usr/bin/docker", CgroupMode::Direct),
            root: RootFs::Image("x".into()),
            asked: "x".into(),
            env: Vec::new(),
            volumes: Vec::new(),
            walls: None,
            held: HeldLimits { memory: held, sockets: held, pids: held, cpus: held },
            fallback: false,
            refused_options: Vec::new(),
            rank: 0,
        }
    }

    #[derive(Debug, Clone)]
    struct NoImage;

    impl std::fmt::Display for NoImage {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no image")
        }
    }

    impl WantedImage for NoImage {
        fn in_engine(&self, _: RuntimeKind) -> Option<EngineImage<'_>> {
            None
        }
    }

    fn fleet(loads: &[(&str, u32, u32)]) -> Fleet<NoImage> {
        let targets: Vec<Target> = loads.iter().map(|(name, ..)| choice(name).runtime.target()).collect();
        let machines = Arc::new(Machines::new(crate::machine::MachinePolicy::default(), None));
        let fleet = Fleet::new(&targets, &[], &machines);
        for (engine, (name, running, cpus)) in fleet.engines.iter().zip(loads) {
            let mut state = engine.lock();
            state.choice = Some(choice(name));
            state.load = Load { running: *running, sent: 0, cpus: *cpus };
        }
        fleet
    }

    fn picks(fleet: &Fleet<NoImage>, count: usize) -> Vec<String> {
        let name = |choice: Choice| choice.runtime.address.connection.unwrap_or_default();
        (0..count).filter_map(|_| fleet.least_loaded().map(name)).collect()
    }

    #[test]
    fn sandboxes_go_to_the_least_loaded_engine() {
        assert_eq!(picks(&fleet(&[("a", 0, 2), ("b", 0, 2)]), 4), ["a", "b", "a", "b"]);
        assert_eq!(picks(&fleet(&[("a", 0, 2), ("b", 0, 6)]), 4), ["a", "b", "b", "b"]);
        assert_eq!(picks(&fleet(&[("a", 3, 2), ("b", 0, 2)]), 3), ["b", "b", "b"]);
    }

    #[test]
    fn an_engine_that_fails_is_set_aside_for_longer_each_time() {
        let fleet = fleet(&[("a", 0, 1), ("b", 5, 1)]);
        let refusal = Refusal::NotInstalled;
        assert!(fleet.reject(&choice("a"), &refusal), "b works");
        assert!(!fleet.engines[0].is_due() && fleet.engines[1].is_due());
        assert_eq!(picks(&fleet, 2), ["b", "b"]);
        assert_eq!(fleet.refusals().len(), 1);
        let pause = fleet.engines[0].lock().pause;
        fleet.engines[0].set_aside("host:".into(), refusal.clone());
        assert!(fleet.engines[0].lock().pause > pause);
        assert!(!fleet.reject(&choice("b"), &refusal), "no engine is left");
        assert_eq!(picks(&fleet, 1), [""; 0]);
    }
}
