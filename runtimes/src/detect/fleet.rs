//! Several engines that share the sandboxes: each new one goes to the least loaded that answers.
//!
//! Who fails is set aside for a while, longer each time, and tried again then, or at once when nobody else is left.

use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::Mutex;

use super::candidate::{Candidate, Trial, ask_engine};
use super::{Choice, NothingWorks, RootProvider};
use crate::address::Target;
use crate::cli::EngineInfo;
use crate::driver::{AnyDriver, RuntimeId};
use crate::refusal::Refusal;
use crate::spec::RootFs;

/// An engine among others does not get longer to say how it is.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// What an engine said of its load is believed this long.
const FRESH: Duration = Duration::from_millis(200);
/// How long an engine that failed is left alone, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Fleet {
    places: Vec<Place>,
    roots: Vec<RootFs>,
}

/// One engine.
#[derive(Debug)]
struct Place {
    target: Target,
    /// Held while it is asked, so that it is asked once.
    asking: Mutex<()>,
    state: StdMutex<State>,
}

#[derive(Debug, Default)]
struct State {
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
    root: RootFs,
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

impl Fleet {
    pub(super) fn new(targets: &[Target], roots: &[RootFs]) -> Self {
        let place = |target: &Target| Place {
            target: target.clone(),
            asking: Mutex::default(),
            state: StdMutex::default(),
        };
        Self { places: targets.iter().map(place).collect(), roots: roots.to_vec() }
    }

    /// The engine for one more sandbox.
    pub(super) async fn choose<P: RootProvider>(&self, trial: &Trial<'_, P>) -> Result<Choice, NothingWorks> {
        let due: Vec<&Place> = self.places.iter().filter(|place| place.is_due()).collect();
        let asked = if due.is_empty() { self.places.iter().collect() } else { due };
        join_all(asked.into_iter().map(|place| place.look(&self.roots, trial))).await;
        if let Some(choice) = self.least_loaded() {
            return Ok(choice);
        }
        if trial.stop.is_cancelled() {
            return Err(NothingWorks { tried: Vec::new() });
        }
        // The others may be back by now.
        join_all(self.places.iter().map(|place| place.look(&self.roots, trial))).await;
        self.least_loaded().ok_or_else(|| NothingWorks { tried: self.refusals() })
    }

    /// An engine did not start what it was chosen for; whether another one may.
    pub(super) fn reject(&self, choice: &Choice, refusal: &Refusal) -> bool {
        let target = choice.runtime.target();
        for place in self.places.iter().filter(|place| place.target == target) {
            place.set_aside(choice.asked.clone(), refusal.clone());
        }
        self.places.iter().any(|place| place.lock().choice.is_some())
    }

    fn least_loaded(&self) -> Option<Choice> {
        // Looked at and counted in one go: who chooses next sees what was sent.
        let mut states: Vec<_> = self.places.iter().map(Place::lock).collect();
        let working = states.iter_mut().filter(|state| state.choice.is_some());
        // The wanted image goes before a free processor.
        let key = |state: &State| (state.choice.as_ref().is_some_and(|it| it.fallback), state.load.density());
        let least =
            working.min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal))?;
        least.load.sent += 1;
        least.choice.clone()
    }

    fn refusals(&self) -> Vec<(Target, RootFs, Refusal)> {
        let aside = |place: &Place| {
            let state = place.lock();
            let Aside { refusal, root, .. } = state.aside.as_ref()?;
            Some((place.target.clone(), root.clone(), refusal.clone()))
        };
        self.places.iter().filter_map(aside).collect()
    }
}

impl Place {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) -> bool {
        self.lock().aside.as_ref().is_none_or(|aside| aside.until <= Instant::now())
    }

    fn is_fresh(&self) -> bool {
        self.lock().asked.is_some_and(|asked| asked.elapsed() < FRESH)
    }

    fn set_aside(&self, root: RootFs, refusal: Refusal) {
        let mut state = self.lock();
        let pause = state.pause.unwrap_or(FIRST_PAUSE);
        tracing::warn!(engine = %self.target, %refusal, ?pause, "set aside");
        let until = Instant::now() + pause;
        *state = State {
            aside: Some(Aside { refusal, root, until }),
            pause: Some((pause * 2).min(LONGEST_PAUSE)),
            asked: Some(Instant::now()),
            ..State::default()
        };
    }

    /// Finds out how the engine is: by a question when it has run a sandbox before, else by one.
    async fn look<P: RootProvider>(&self, roots: &[RootFs], trial: &Trial<'_, P>) {
        let _asking = self.asking.lock().await;
        if self.is_fresh() {
            return;
        }
        let known = self.lock().choice.clone().filter(|choice| choice.runtime.is_current());
        match known {
            Some(choice) => self.ask(&choice).await,
            None => self.try_out(roots, trial).await,
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

    async fn try_out<P: RootProvider>(&self, roots: &[RootFs], trial: &Trial<'_, P>) {
        let mut candidate = Candidate::in_path(self.target.clone());
        let mut first = None;
        for (rank, root) in roots.iter().enumerate() {
            match candidate.probe(root, trial).await {
                Ok(choice) => {
                    let was_aside = self.lock().aside.is_some();
                    let again = if was_aside { "is back" } else { "takes sandboxes" };
                    tracing::info!(root = %choice.asked, "{} {again}", self.target);
                    let info = candidate.engine.as_ref().and_then(|info| info.as_ref().ok());
                    *self.lock() = State {
                        choice: Some(Choice { fallback: rank > 0, ..choice }),
                        load: info.map(Load::from).unwrap_or_default(),
                        asked: Some(Instant::now()),
                        ..State::default()
                    };
                    return;
                }
                Err(refusal) => {
                    first.get_or_insert((root.clone(), refusal));
                }
            }
        }
        if let Some((root, refusal)) = first
            && !trial.stop.is_cancelled()
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
        AnyDriver::Cli(driver) => Ok(Load::from(&ask_engine(&driver, ASK_LIMIT).await?)),
        // Nobody counts for them.
        AnyDriver::Oci(_) => Ok(Load::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{CgroupMode, HeldLimits, Mechanism, RuntimeKind};

    fn choice(name: &str) -> Choice {
        let target = Target { kind: RuntimeKind::Docker, connection: Some(name.into()) };
        let held = Mechanism::Cgroup;
        Choice {
            runtime: RuntimeId::at(&target, "/usr/bin/docker", CgroupMode::Direct),
            root: RootFs::Image("x".into()),
            asked: RootFs::Image("x".into()),
            env: Vec::new(),
            held: HeldLimits { memory: held, pids: held, cpus: held },
            fallback: false,
        }
    }

    fn fleet(loads: &[(&str, u32, u32)]) -> Fleet {
        let targets: Vec<Target> = loads.iter().map(|(name, ..)| choice(name).runtime.target()).collect();
        let fleet = Fleet::new(&targets, &[]);
        for (place, (name, running, cpus)) in fleet.places.iter().zip(loads) {
            let mut state = place.lock();
            state.choice = Some(choice(name));
            state.load = Load { running: *running, sent: 0, cpus: *cpus };
        }
        fleet
    }

    fn picks(fleet: &Fleet, count: usize) -> Vec<String> {
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
        fleet.places[0].set_aside(RootFs::Host, refusal.clone());
        assert!(fleet.places[0].lock().pause > pause);
        assert!(!fleet.reject(&choice("b"), &refusal), "nobody is left");
        assert_eq!(picks(&fleet, 1), [""; 0]);
    }
}
