//! Several engines that share the sandboxes: each new one goes to the least loaded that answers.
//!
//! Who fails is set aside for a while, longer each time, and tried again then, or at once when nobody else is left. Where
//! another one works, nobody waits for that.

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

/// An engine among others does not get longer to say how it is.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// How long an engine that was never tried is waited for while another one works: longer than all that are asked.
const PATIENCE: Duration = Duration::from_secs(6);
/// What an engine said of its load is believed this long.
const FRESH: Duration = Duration::from_millis(200);
/// How long an engine that failed is left alone, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Fleet<I> {
    places: Vec<Arc<Place>>,
    roots: Arc<[WantedRoot<I>]>,
    machines: Arc<Machines>,
    /// Those that find out how an engine is; each is driven to its end, so that what it started is ended.
    looks: TaskTracker,
}

/// One engine.
#[derive(Debug)]
struct Place {
    target: Target,
    /// Held while it is asked, so that it is asked once.
    asking: Mutex<()>,
    state: StdMutex<PlaceState>,
}

#[derive(Debug, Default)]
struct PlaceState {
    choice: Option<Choice>,
    load: Load,
    asked: Option<Instant>,
    aside: Option<Aside>,
    /// Pause after the next failure.
    pause: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Aside {
    refusal: Refusal,
    root: String,
    until: Instant,
}

/// How much an engine has to do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Load {
    running: u32,
    /// Sandboxes that were sent there since it was asked.
    sent: u32,
    cpus: u32,
}

impl Load {
    /// Containers for each processor.
    fn density(self) -> f64 {
        f64::from(self.running + self.sent) / f64::from(self.cpus.max(1))
    }
}

impl<I: WantedImage> Fleet<I> {
    pub(super) fn new(targets: &[Target], roots: &[WantedRoot<I>], machines: &Arc<Machines>) -> Self {
        let place = |target: &Target| {
            Arc::new(Place { target: target.clone(), asking: Mutex::default(), state: StdMutex::default() })
        };
        Self {
            places: targets.iter().map(place).collect(),
            roots: roots.into(),
            machines: Arc::clone(machines),
            looks: TaskTracker::new(),
        }
    }

    /// The engine for one more sandbox.
    pub(super) async fn choose<P: RootProvider<Image = I> + Clone + 'static>(
        &self,
        probe: &Probe,
        provider: &P,
        instance: &Arc<Instance>,
        stop: &CancellationToken,
    ) -> Result<Choice, NothingWorks> {
        let look = Look {
            machines: Arc::clone(&self.machines),
            roots: Arc::clone(&self.roots),
            probe: probe.clone(),
            provider: provider.clone(),
            instance: Arc::clone(instance),
            stop: stop.clone(),
        };
        let (due, later): (Vec<_>, Vec<_>) = self.places.iter().partition(|place| place.is_due());
        self.look_at(due, &look).await;
        if let Some(choice) = self.least_loaded() {
            return Ok(choice);
        }
        if !stop.is_cancelled() {
            // The others may be back by now.
            self.look_at(later, &look).await;
        }
        if stop.is_cancelled() {
            return Err(NothingWorks { tried: Vec::new() });
        }
        self.least_loaded().ok_or_else(|| NothingWorks { tried: self.refusals() })
    }

    /// Finds out how these are, and returns when that is known of all, or of enough to go on with.
    async fn look_at<P: RootProvider<Image = I> + Clone + 'static>(
        &self,
        places: Vec<&Arc<Place>>,
        look: &Look<P>,
    ) {
        let (back, awaited): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| place.is_aside());
        let begin = |place: &Arc<Place>| {
            let (place, look) = (Arc::clone(place), look.clone());
            self.looks.spawn(async move { place.look(&look).await })
        };
        let mut awaited: FuturesUnordered<_> = awaited.into_iter().map(begin).collect();
        let mut back: FuturesUnordered<_> = back.into_iter().map(begin).collect();
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let mut patient = true;
        loop {
            let all = awaited.is_empty() && back.is_empty();
            let enough = awaited.is_empty() || !patient;
            if all || (enough && self.somebody_works()) {
                return;
            }
            tokio::select! {
                Some(_) = awaited.next() => {}
                Some(_) = back.next() => {}
                () = &mut patience, if patient => patient = false,
            }
        }
    }

    fn somebody_works(&self) -> bool {
        self.places.iter().any(|place| place.lock().choice.is_some())
    }

    /// Why a sandbox that takes long to start on this engine is not waited for any longer; never ends while there is no
    /// reason.
    pub(super) async fn stalls(&self, choice: &Choice) -> Refusal {
        loop {
            tokio::time::sleep(ASK_LIMIT).await;
            if let Err(refusal) = load_of(&choice.runtime).await {
                return refusal;
            }
        }
    }

    /// Waits for everybody who finds out how an engine is.
    pub(super) async fn close(&self) {
        self.looks.close();
        self.looks.wait().await;
    }

    /// An engine did not start what it was chosen for; whether another one may.
    pub(super) fn reject(&self, choice: &Choice, refusal: &Refusal) -> bool {
        let target = choice.runtime.target();
        for place in self.places.iter().filter(|place| place.target == target) {
            place.set_aside(choice.asked.clone(), refusal.clone());
        }
        self.somebody_works()
    }

    fn least_loaded(&self) -> Option<Choice> {
        // Looked at and counted in one go: who chooses next sees what was sent.
        let mut states: Vec<_> = self.places.iter().map(|place| place.lock()).collect();
        let working = states.iter_mut().filter(|state| state.choice.is_some());
        // The wanted image goes before a free processor.
        let key =
            |state: &PlaceState| (state.choice.as_ref().is_some_and(|it| it.fallback), state.load.density());
        let least =
            working.min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal))?;
        least.load.sent += 1;
        least.choice.clone()
    }

    fn refusals(&self) -> Vec<(Target, String, Refusal)> {
        let aside = |place: &Arc<Place>| {
            let state = place.lock();
            let Aside { refusal, root, .. } = state.aside.as_ref()?;
            Some((place.target.clone(), root.clone(), refusal.clone()))
        };
        self.places.iter().filter_map(aside).collect()
    }
}

/// What is needed to find out how an engine is.
#[derive(Clone)]
struct Look<P: RootProvider> {
    machines: Arc<Machines>,
    roots: Arc<[WantedRoot<P::Image>]>,
    probe: Probe,
    provider: P,
    instance: Arc<Instance>,
    stop: CancellationToken,
}

impl Place {
    fn lock(&self) -> std::sync::MutexGuard<'_, PlaceState> {
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
        tracing::warn!(engine = %self.target, %refusal, ?pause, "set aside");
        let until = Instant::now() + pause;
        *state = PlaceState {
            aside: Some(Aside { refusal, root, until }),
            pause: Some((pause * 2).min(LONGEST_PAUSE)),
            asked: Some(Instant::now()),
            ..PlaceState::default()
        };
    }

    /// Finds out how the engine is: by a question when it has run a sandbox before, else by one.
    async fn look<P: RootProvider>(&self, look: &Look<P>) {
        let _asking = self.asking.lock().await;
        if self.is_fresh() {
            return;
        }
        let _in_use = look.machines.use_engines().await;
        let known = self.lock().choice.clone().filter(|choice| choice.runtime.is_current());
        match known {
            Some(choice) => self.ask(&choice).await,
            None => self.try_out(look).await,
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

    async fn try_out<P: RootProvider>(&self, look: &Look<P>) {
        let Look { machines, roots, probe, provider, instance, stop } = look;
        let trial = Trial { machines, probe, provider, instance, stop };
        let mut candidate = Candidate::in_path(self.target.clone());
        let mut first = None;
        for (rank, root) in roots.iter().enumerate() {
            match candidate.probe(root, rank, &trial).await {
                Ok(choice) => {
                    let was_aside = self.lock().aside.is_some();
                    let again = if was_aside { "is back" } else { "takes sandboxes" };
                    tracing::info!(root = %choice.asked, "{} {again}", self.target);
                    let info = candidate.engine.as_ref().and_then(|info| info.as_ref().ok());
                    *self.lock() = PlaceState {
                        choice: Some(choice),
                        load: info.map(Load::from).unwrap_or_default(),
                        asked: Some(Instant::now()),
                        ..PlaceState::default()
                    };
                    return;
                }
                Err(refusal) => {
                    first.get_or_insert((root.to_string(), refusal));
                }
            }
        }
        if let Some((root, refusal)) = first
            && !stop.is_cancelled()
        {
            self.set_aside(root, refusal);
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
        // Nobody counts for them.
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
            held: HeldLimits { memory: held, pids: held, cpus: held },
            fallback: false,
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
        for (place, (name, running, cpus)) in fleet.places.iter().zip(loads) {
            let mut state = place.lock();
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
    fn sandboxes_go_where_there_is_room() {
        assert_eq!(picks(&fleet(&[("a", 0, 2), ("b", 0, 2)]), 4), ["a", "b", "a", "b"]);
        assert_eq!(picks(&fleet(&[("a", 0, 2), ("b", 0, 6)]), 4), ["a", "b", "b", "b"]);
        assert_eq!(picks(&fleet(&[("a", 3, 2), ("b", 0, 2)]), 3), ["b", "b", "b"]);
    }

    #[test]
    fn who_fails_is_left_alone_for_longer_each_time() {
        let fleet = fleet(&[("a", 0, 1), ("b", 5, 1)]);
        let refusal = Refusal::NotInstalled;
        assert!(fleet.reject(&choice("a"), &refusal), "b may do it");
        assert!(!fleet.places[0].is_due() && fleet.places[1].is_due());
        assert_eq!(picks(&fleet, 2), ["b", "b"]);
        assert_eq!(fleet.refusals().len(), 1);
        let pause = fleet.places[0].lock().pause;
        fleet.places[0].set_aside("host:".into(), refusal.clone());
        assert!(fleet.places[0].lock().pause > pause);
        assert!(!fleet.reject(&choice("b"), &refusal), "nobody is left");
        assert_eq!(picks(&fleet, 1), [""; 0]);
    }
}
