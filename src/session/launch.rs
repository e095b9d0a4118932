//! From "there is no interpreter" to a live one: the state folder, the choice of a runtime, the sandbox.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use codebridge_images::ImageResolver;
use codebridge_runtimes::{
    AnyDriver, Choice, Detector, Instance, LaunchError, Limits, MachinePolicy, NothingWorks, Owner, Probe,
    ProbeReport, Refusal, RootFs, RuntimeId, Sandbox, SandboxSpec, StateDir, StateError, Tmpfs, User,
    WantedRoot, reclaim_instance, sweep,
};
use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::ServerAccess;
use super::answers::Answerer;
use super::bytecode::Bytecode;
use super::interpreter::{Interpreter, StartError, Startup};
use super::library;
use super::roots::{Image, Provider, Telling, to_compile};
use super::{Failure, Progress};
use crate::guest;
use crate::image_sources::image_resolver;
use crate::reaper::Reaper;
use crate::settings::{ImageChoice, Settings};

/// Writable places of every sandbox and their sizes.
const TMPFS: [(&str, u64); 3] = [("/tmp", 64 << 20), ("/workspace", 128 << 20), ("/projects", 16 << 20)];
/// Descriptors per process.
const DESCRIPTORS: u64 = 1024;
/// A sandbox on a loaded host may take long to come up; a hanging one is not waited for longer than this.
const START_LIMIT: Duration = Duration::from_secs(60);
/// What dead bridges left may be on an engine that hangs, which is no reason to stay. The next bridge looks again.
const SWEEP_PATIENCE: Duration = Duration::from_secs(1);
/// How long a start takes before its progress is worth a word.
const SLOW_START: Duration = Duration::from_millis(500);

/// Why there is no interpreter.
#[derive(Debug)]
pub(super) struct StartFailure {
    pub(super) failure: Failure,
    pub(super) text: String,
}

impl StartFailure {
    pub(super) fn stopped() -> Self {
        Self::sandbox("stopped before it had started")
    }

    fn sandbox(text: impl ToString) -> Self {
        Self { failure: Failure::Sandbox, text: text.to_string() }
    }
}

impl From<NothingWorks> for StartFailure {
    fn from(error: NothingWorks) -> Self {
        let failure = if error.lacks_image() { Failure::NoImage } else { Failure::NoRuntime };
        Self { failure, text: error.to_string() }
    }
}

impl From<StateError> for StartFailure {
    fn from(error: StateError) -> Self {
        Self::sandbox(error)
    }
}

/// Starts interpreters, whoever they are for.
#[derive(Debug)]
pub struct Launcher {
    template: Template,
    detector: Detector<Image>,
    state: StateDir,
    images: Arc<ImageResolver>,
    bytecode: Bytecode,
    /// Made at the first execution.
    instance: OnceCell<Arc<Instance>>,
    reaper: Reaper,
    watched: OnceCell<()>,
    /// Things to say once, with the first result.
    warned_of_fallback: Mutex<bool>,
    /// The engines that were asked for what dead bridges left in them.
    swept_engines: Mutex<HashSet<RuntimeId>>,
    sweeps: TaskTracker,
}

/// The parts of a sandbox's specification that never change.
#[derive(Debug, Clone)]
struct Template {
    user: User,
    limits: Limits,
    security_options: Vec<String>,
}

impl Launcher {
    /// Returns a launcher for these settings. Nothing is looked for before the first start.
    pub fn new(settings: &Settings, reaper: Reaper) -> Self {
        let roots = match &settings.image.value {
            ImageChoice::Unset(name) => vec![WantedRoot::Image(Image::named(name)), WantedRoot::Host],
            ImageChoice::Image(name) => vec![WantedRoot::Image(Image::named(name))],
            ImageChoice::Dir(path) => vec![WantedRoot::Directory(path.clone())],
            ImageChoice::Host => vec![WantedRoot::Host],
        };
        let user = User { uid: settings.container_user.value.uid, gid: settings.container_user.value.gid };
        let limits = Limits {
            memory: settings.memory.value,
            pids: settings.pids.value,
            cpus: settings.cpus.value,
            descriptors: DESCRIPTORS,
        };
        Self {
            template: Template { user, limits, security_options: settings.security_opt.value.clone() },
            detector: Detector::new(settings.runtime.value.clone(), roots, machines(settings), cache_dir()),
            state: StateDir::usual(),
            images: Arc::new(image_resolver(false)),
            bytecode: Bytecode::at(cache_dir().map(|dir| dir.join("guest"))),
            instance: OnceCell::new(),
            reaper,
            watched: OnceCell::new(),
            warned_of_fallback: Mutex::new(false),
            swept_engines: Mutex::default(),
            sweeps: TaskTracker::new(),
        }
    }

    /// The state folder of this bridge, which the reaper watches from then on.
    async fn instance(&self) -> Result<&Arc<Instance>, StateError> {
        self.instance
            .get_or_try_init(|| async {
                let owner = Owner::this_process(random_id());
                let instance = Arc::new(self.state.create_instance(&owner)?);
                let (reaper, watched) = (self.reaper.clone(), Arc::clone(&instance));
                // The reaper starts while the sandbox does.
                tokio::spawn(async move { reaper.watch_instance(watched.path()).await });
                Ok(instance)
            })
            .await
    }

    fn sweep_in_the_background(&self, engine: Option<RuntimeId>) {
        let state = self.state.clone();
        self.sweeps.spawn(async move {
            let swept = sweep(&state, engine.as_slice()).await;
            if !swept.removed.is_empty() {
                tracing::info!(count = swept.removed.len(), "removed what a dead bridge had left");
            }
            for error in swept.failed {
                tracing::warn!(%error, "what a dead bridge left stays");
            }
            for error in swept.absent {
                tracing::debug!(%error, "what a dead bridge left is on an engine that does not answer");
            }
        });
    }

    /// Starts an interpreter with the first runtime that can. The notices are for the call that started it.
    pub(super) async fn start(
        &self,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        progress: &mpsc::Sender<Progress>,
        cancel: &CancellationToken,
    ) -> Result<(Interpreter, Vec<String>), StartFailure> {
        let telling = Telling::new(progress.clone());
        let start = self.start_quietly(answerer, access, &telling, cancel);
        tokio::pin!(start);
        let started = match tokio::time::timeout(SLOW_START, &mut start).await {
            Ok(started) => started,
            Err(_) => {
                // Unless something more exact was said by now, such as how much of the image is here.
                telling.say_first("starting a sandbox".into());
                start.await
            }
        };
        if started.is_err() {
            // What dead bridges left may be what is in the way.
            self.sweep_in_the_background(None);
        }
        started
    }

    async fn start_quietly(
        &self,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        telling: &Arc<Telling>,
        cancel: &CancellationToken,
    ) -> Result<(Interpreter, Vec<String>), StartFailure> {
        let instance = self.instance().await?;
        loop {
            let probe = self.probe(instance);
            let roots = Provider::new(&self.images, instance, telling);
            let choice = self.detector.choose(&probe, &roots, instance, cancel).await;
            if cancel.is_cancelled() {
                return Err(StartFailure::stopped());
            }
            let choice = choice?;
            let refusal = match self.start_with(&choice, instance, answerer, access, telling, cancel).await {
                Ok(interpreter) => {
                    self.watched.get_or_init(|| self.reaper.watch_instance(instance.path())).await;
                    let mut swept = self.swept_engines.lock().unwrap_or_else(PoisonError::into_inner);
                    if swept.insert(choice.runtime.clone()) {
                        self.sweep_in_the_background(Some(choice.runtime.clone()));
                    }
                    drop(swept);
                    return Ok((interpreter, self.notices(&choice)));
                }
                Err(Attempt::Refused(refusal)) => refusal,
                Err(Attempt::Failed(failure)) => return Err(failure),
            };
            let text =
                format!("{} did not start a sandbox: {refusal}\n  hint: {}", choice.runtime, refusal.hint());
            if !self.detector.reject(&choice, refusal).await {
                return Err(StartFailure::sandbox(text));
            }
        }
    }

    async fn start_with(
        &self,
        choice: &Choice,
        instance: &Arc<Instance>,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        telling: &Telling,
        cancel: &CancellationToken,
    ) -> Result<Interpreter, Attempt> {
        let driver = Arc::new(AnyDriver::new(choice.runtime.clone()));
        let mut spec = self.template.spec(instance, guest::argv());
        spec.root = choice.root.clone();
        spec.env.splice(0..0, choice.env.iter().cloned());
        spec.volumes.clone_from(&choice.volumes);
        if let Some(compiling) = to_compile(&choice.root) {
            telling.say("compiling the standard library of the image, once".into());
            library::compile(compiling, &driver, &spec, instance, cancel).await;
        }
        let plan = driver.plan(&spec, instance).map_err(|error| Attempt::of(error.into()))?;
        let sandbox = Sandbox::launch(&driver, plan, instance).await.map_err(Attempt::of)?;
        let own = sandbox.own_limits();
        let blob = guest::blob(&guest::Start {
            data: own.data,
            address_space: own.address_space,
            processes: own.processes,
            wants_compiled: self.bytecode.keeps(),
            compiled: self.bytecode.load(&choice.root),
        });
        let startup = Startup {
            guest: blob,
            saved_tools: answerer.tools().load(),
            answerer: Arc::clone(answerer),
            access: Arc::clone(access),
            memory_limit: self.template.limits.memory,
        };
        let give_up = cancel.child_token();
        let start = Interpreter::start(sandbox, startup, START_LIMIT, &give_up);
        tokio::pin!(start);
        let (started, stalled) = tokio::select! {
            started = &mut start => (started, None),
            refusal = self.detector.stalls(choice) => {
                give_up.cancel();
                (start.await, Some(refusal))
            }
        };
        let (sandbox, error) = match started {
            Ok(mut interpreter) => {
                if let Some(offered) = interpreter.take_offered() {
                    self.bytecode.keep(&choice.root, &offered);
                }
                return Ok(interpreter);
            }
            Err(failed) => failed,
        };
        if let (Some(refusal), StartError::Cancelled) = (stalled, &error) {
            sandbox.end_later();
            return Err(Attempt::Refused(refusal));
        }
        let attempt = match error {
            StartError::Ended(end, messages) => Attempt::Refused(driver.explain(end, &messages)),
            StartError::TimedOut(message) => Attempt::Refused(Refusal::TimedOut { message }),
            StartError::Frame(error) => Attempt::Refused(Refusal::Other { message: error.to_string() }),
            StartError::Protocol(version) => Attempt::Failed(StartFailure::sandbox(format!(
                "the sandbox speaks version {version} of the protocol, this bridge another one"
            ))),
            StartError::Cancelled => Attempt::Failed(StartFailure::stopped()),
        };
        if let Err(error) = sandbox.end().await {
            tracing::warn!(%error, "a sandbox that did not start was left behind");
        }
        Err(attempt)
    }

    /// Said with the first result only: the wanted image was not to be had, or limits are weaker than they look.
    fn notices(&self, choice: &Choice) -> Vec<String> {
        let mut said = self.warned_of_fallback.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut said, true) || !choice.fallback {
            return Vec::new();
        }
        let text = "the image python:3.14-slim is not to be had here: this machine's own Python runs in its place \
                    (set MCP_BRIDGE_IMAGE to choose an image, or to 'host:' for this without the notice)";
        tracing::warn!("{text}");
        vec![text.into()]
    }

    fn probe(&self, instance: &Instance) -> Probe {
        let argv = ["python3", "-B", "-c", guest::PROBE].map(String::from).to_vec();
        Probe {
            template: self.template.spec(instance, argv),
            expected: guest::PROBE_ANSWER.into(),
            limit: START_LIMIT,
        }
    }

    /// Tries every runtime with the wanted image, for diagnosis.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub async fn examine(&self) -> Result<Vec<ProbeReport>, StateError> {
        let instance = self.instance().await?;
        // Nobody listens to a diagnosis.
        let (progress, _) = mpsc::channel(1);
        let roots = Provider::new(&self.images, instance, &Telling::new(progress));
        let stop = CancellationToken::new();
        Ok(self.detector.examine(&self.probe(instance), &roots, instance, &stop).await)
    }

    /// The last launch that failed although its probe had run.
    pub fn setback(&self) -> Option<codebridge_runtimes::Setback> {
        self.detector.setback()
    }

    /// Removes what is left of this bridge's sandboxes, and its folder.
    pub async fn close(&self) {
        let Some(instance) = self.instance.get() else { return };
        self.detector.close().await;
        self.sweeps.close();
        if tokio::time::timeout(SWEEP_PATIENCE, self.sweeps.wait()).await.is_err() {
            tracing::debug!("what dead bridges left is not looked for to the end");
        }
        let swept = reclaim_instance(instance).await;
        for error in swept.failed {
            tracing::error!(%error, "a sandbox was left behind");
        }
    }
}

/// What became of one attempt to start.
enum Attempt {
    /// The runtime would not; another one may.
    Refused(Refusal),
    /// Nothing that another runtime would do better.
    Failed(StartFailure),
}

impl Attempt {
    fn of(error: LaunchError) -> Self {
        match error {
            LaunchError::Exec(error) => Self::Refused(Refusal::Other { message: error.to_string() }),
            other => Self::Failed(StartFailure::sandbox(other)),
        }
    }
}

impl Template {
    /// A specification whose root is still to be filled in.
    fn spec(&self, instance: &Instance, argv: Vec<String>) -> SandboxSpec {
        let env = [("HOME", "/workspace"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")];
        SandboxSpec {
            name: instance.next_name(),
            root: RootFs::Host,
            argv,
            env: env.map(|(key, value)| (key.to_string(), value.to_string())).to_vec(),
            cwd: "/workspace".into(),
            hostname: "sandbox".into(),
            tmpfs: TMPFS.map(|(target, size)| Tmpfs { target: target.into(), size }).to_vec(),
            user: self.user,
            limits: self.limits,
            owner: instance.owner().clone(),
            security_options: self.security_options.clone(),
            volumes: Vec::new(),
        }
    }
}

/// What may be done with podman's machines.
fn machines(settings: &Settings) -> MachinePolicy {
    MachinePolicy {
        init: settings.machine_init.value,
        rootful: settings.machine_rootful.value,
        idle: settings.runtime_idle_timeout.value,
        supervisor: crate::machine_supervisor::command(),
        share: Some(settings.state_dir.value.clone()),
    }
}

/// `$XDG_CACHE_HOME/codebridge` or its usual place.
pub fn cache_dir() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("codebridge"))
}

/// Ten random lower-case letters and digits.
fn random_id() -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{:010x}", random & 0xff_ffff_ffff)
}
