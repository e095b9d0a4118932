//! Starts interpreters: the state folder, the choice of a runtime, the sandbox.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use codebridge_images::ImageResolver;
use codebridge_runtimes::{
    AnyDriver, Choice, Detector, Instance, LaunchError, MachinePolicy, Oddities, Owner, Probe, ProbeReport,
    RuntimeChoice, RuntimeId, RuntimeKind, Sandbox, SandboxSpec, StateDir, StateError, random_hex,
    reclaim_instance, sweep,
};
use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::roots::{Digest, Image, Provider, to_compile, wanted_roots};
use super::shares::{copy_pipes, notices_of_shares};
use super::spares::{Call, Purpose, Spare, Spares, Started};
use super::start_progress::StartProgress;
use super::template::Template;
use crate::guest;
use crate::image_sources::image_resolver;
use crate::packages::PackageService;
use crate::reaper::Reaper;
use crate::session::Progress;
use crate::session::answers::Answerer;
use crate::session::answers::ServerAccess;
use crate::session::answers::SessionPackages;
use crate::session::bytecode::{GuestBytecode, compile_library};
use crate::session::capacity::Workers;
use crate::session::interpreter::{Guest, Interpreter, StartError, Startup};
use crate::settings::{AuditLevel, Settings, variables};
use crate::telemetry::Telemetry;

/// How long a sandbox may take to start, on a loaded host.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the end of the bridge waits for a sweep. The sweep may be on an engine that hangs, and the next bridge sweeps
/// again.
const SWEEP_LIMIT: Duration = Duration::from_secs(1);
/// How long a start takes before its progress is reported.
const SLOW_START: Duration = Duration::from_millis(500);

/// Starts interpreters, whoever they are for.
#[derive(Debug)]
pub struct Launcher {
    template: Template,
    detector: Detector<Image>,
    state: StateDir,
    /// The wanted image, for messages.
    image: String,
    /// What the user types to set another one.
    image_setting: String,
    /// The file or folder that it is in.
    image_path: Option<PathBuf>,
    images: Arc<ImageResolver>,
    bytecode: GuestBytecode,
    packages: Arc<PackageService>,
    telemetry: Telemetry,
    /// Whether there is an audit log, which names the digests of images.
    is_recorded: bool,
    /// Those of all sessions, whoever they are for.
    workers: Arc<Workers>,
    /// Made at the first execution.
    instance: OnceCell<Arc<Instance>>,
    reaper: Reaper,
    /// Whether the notices were given to a call.
    has_noticed: AtomicBool,
    /// What calls were told of the shares.
    told_of_shares: Mutex<HashSet<String>>,
    /// The engines whose leftovers of dead bridges were removed.
    swept_engines: Mutex<HashSet<RuntimeId>>,
    sweeps: TaskTracker,
    spares: Arc<Spares>,
}

impl Launcher {
    /// Returns a launcher for these settings. Nothing is looked for before the first start.
    pub fn new(
        settings: &Settings,
        reaper: Reaper,
        packages: Arc<PackageService>,
        telemetry: Telemetry,
    ) -> Self {
        let (runtime, roots) = (settings.runtime.value.clone(), wanted_roots(&settings.image));
        let is_spread = matches!(&runtime, RuntimeChoice::Named(targets) if targets.len() > 1);
        Self {
            image_setting: settings.name_of(&variables::IMAGE),
            image_path: settings.image.path().map(PathBuf::from),
            image: roots.first().map(ToString::to_string).unwrap_or_default(),
            template: Template::of(settings),
            detector: Detector::new(runtime, roots, &settings.security_opt, machines(settings), cache_dir()),
            state: StateDir::usual(),
            images: Arc::new(image_resolver(false)),
            bytecode: GuestBytecode::in_cache(cache_dir()),
            packages,
            telemetry,
            is_recorded: settings.audit.level != AuditLevel::Off,
            workers: Arc::default(),
            instance: OnceCell::new(),
            reaper,
            has_noticed: AtomicBool::new(false),
            told_of_shares: Mutex::default(),
            swept_engines: Mutex::default(),
            sweeps: TaskTracker::new(),
            spares: Spares::new(settings.warm.value, settings.runtime_idle_timeout.value, is_spread),
        }
    }

    /// Begins a call: spare sandboxes start when it has ended.
    pub(in crate::session) fn begin_call(&self) -> Call {
        self.spares.begin_call()
    }

    pub(in crate::session) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    pub(in crate::session) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Returns the state folder of this bridge. The reaper watches it from then on.
    async fn instance(&self) -> Result<&Arc<Instance>, StateError> {
        self.instance
            .get_or_try_init(|| async {
                let owner = Owner::this_process(random_hex::<5>());
                let instance = Arc::new(self.state.create_instance(&owner)?);
                let (reaper, folder) = (self.reaper.clone(), instance.path().to_owned());
                // The reaper starts while the sandbox does.
                tokio::spawn(async move { reaper.watch_instance(&folder).await });
                Ok(instance)
            })
            .await
    }

    fn sweep_in_the_background(&self, engine: Option<RuntimeId>) {
        let (state, telemetry) = (self.state.clone(), self.telemetry.clone());
        self.sweeps.spawn(async move {
            let swept = sweep(&state, engine.as_slice()).await;
            telemetry.swept(swept.removed.len());
            if !swept.removed.is_empty() {
                tracing::info!(count = swept.removed.len(), "removed sandboxes of dead bridges");
            }
            for error in swept.failed {
                tracing::warn!(%error, "could not remove a sandbox of a dead bridge");
            }
            for error in swept.absent {
                tracing::debug!(%error, "a sandbox of a dead bridge is on an engine that does not answer");
            }
        });
    }

    /// Starts an interpreter with the first runtime that can. The notices are for the call that started it.
    pub(in crate::session) async fn start(
        self: &Arc<Self>,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        progress: &mpsc::Sender<Progress>,
        cancel: &CancellationToken,
    ) -> Result<(Interpreter, Vec<String>), StartError> {
        let progress = StartProgress::new(progress.clone());
        let start = self.start_on_any(answerer, access, &progress, cancel);
        tokio::pin!(start);
        let started = match tokio::time::timeout(SLOW_START, &mut start).await {
            Ok(started) => started,
            Err(_) => {
                // Unless something more exact was reported, such as the progress of a pull.
                progress.report_first("starting a sandbox".into());
                start.await
            }
        };
        if let Err(error) = &started {
            // Sandboxes of dead bridges may be in the way.
            self.sweep_in_the_background(None);
            if !matches!(error, StartError::Stopped) {
                self.spares.end_all();
            }
        }
        started
    }

    async fn start_on_any(
        self: &Arc<Self>,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        progress: &Arc<StartProgress>,
        cancel: &CancellationToken,
    ) -> Result<(Interpreter, Vec<String>), StartError> {
        if let Some(path) = &self.image_path
            && !path.exists()
        {
            return Err(StartError::NoSuchPath { image: self.image.clone() });
        }
        let instance = self.instance().await?;
        loop {
            let probe = self.probe(instance);
            let roots = Provider::new(&self.images, instance, progress);
            let choice = self.detector.choose(&probe, &roots, instance, cancel).await;
            if cancel.is_cancelled() {
                return Err(StartError::Stopped);
            }
            let choice = choice?;
            let begun = Instant::now();
            let started = self.start_with(&choice, instance, answerer, access, progress, cancel).await;
            let failure = started.as_ref().err().map(StartError::kind);
            self.telemetry.sandbox_started(choice.runtime.kind.program_name(), begun.elapsed(), failure);
            let refusal = match started {
                Ok((interpreter, mut notices)) => {
                    // The reaper has to run before any code does. Naming the folder twice changes nothing.
                    self.reaper.watch_instance(instance.path()).await;
                    let mut swept = self.swept_engines.lock().unwrap_or_else(PoisonError::into_inner);
                    if swept.insert(choice.runtime.clone()) {
                        self.sweep_in_the_background(Some(choice.runtime.clone()));
                    }
                    drop(swept);
                    notices.splice(0..0, self.notices(&choice));
                    return Ok((interpreter, notices));
                }
                Err(StartError::Refused(refusal)) => refusal,
                Err(error) => return Err(error),
            };
            if !self.detector.reject(&choice, refusal.clone()).await {
                return Err(StartError::LastRefused { runtime: Box::new(choice.runtime), refusal });
            }
        }
    }

    async fn start_with(
        self: &Arc<Self>,
        choice: &Choice,
        instance: &Arc<Instance>,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        progress: &StartProgress,
        cancel: &CancellationToken,
    ) -> Result<(Interpreter, Vec<String>), StartError> {
        let launch = self.prepare(choice, instance, |share| access.has_share(share)).await;
        let purpose = self.purpose_of(&launch);
        let claimed = match &purpose {
            Some(purpose) => self.spares.claim(purpose, cancel).await,
            None => None,
        };
        let found = launch.found.clone();
        let started = match claimed {
            Some(started) => started,
            None => self.launch(launch, instance, progress, cancel).await?,
        };
        let Started { guest, packages, digest } = started;
        if purpose.is_some() && guest.sandbox().copied().is_empty() && self.spares.used(choice) {
            let launcher = Arc::clone(self);
            self.spares.keep(move |choice| Arc::clone(&launcher).start_spare(choice));
        }
        let shares = self.new_notices_of_shares(guest.sandbox(), &found);
        let saved = answerer.tools().load();
        let notices = saved.notices().chain(shares).collect();
        let startup = Startup {
            saved_tools: saved.tools,
            answerer: Arc::clone(answerer),
            access: Arc::clone(access),
            memory_limit: self.template.limits.memory,
            made_of: digest.made_of(choice),
        };
        access.set_packages(packages);
        Ok((Interpreter::of(guest, startup), notices))
    }

    /// Returns what to launch, with those of the shares that are allowed.
    async fn prepare<'a>(
        &self,
        choice: &'a Choice,
        instance: &Instance,
        has_share: impl Fn(&str) -> bool,
    ) -> Launch<'a> {
        let driver = Arc::new(AnyDriver::new(choice.runtime.clone()));
        let mut spec = self.template.spec(instance, guest::argv());
        spec.shares.retain(|share| has_share(&share.target));
        spec.root = choice.root.clone();
        spec.env.splice(0..0, choice.env.iter().cloned());
        spec.volumes.clone_from(&choice.volumes);
        let found = copy_pipes(&driver, &mut spec).await;
        Launch { choice, driver, spec, found }
    }

    /// Returns what a spare would have to be for; None where none can be: what is copied would be too old, and only some sessions
    /// lack a share.
    fn purpose_of(&self, launch: &Launch<'_>) -> Option<Purpose> {
        let Launch { choice, driver, spec, .. } = launch;
        let has_all = spec.shares.len() == self.template.shares.len();
        let is_copied = !spec.shares.is_empty() && driver.share_mechanism(spec.user).is_copy();
        (self.spares.are_wanted() && has_all && !is_copied).then(|| Purpose::of(choice, spec))
    }

    /// Launches a sandbox and its guest.
    async fn launch(
        &self,
        launch: Launch<'_>,
        instance: &Arc<Instance>,
        progress: &StartProgress,
        cancel: &CancellationToken,
    ) -> Result<Started, StartError> {
        let Launch { choice, driver, mut spec, found } = launch;
        if let Some(compiling) = to_compile(&choice.root) {
            progress.report("compiling the standard library of the image, once".into());
            compile_library(compiling, &driver, &spec, instance, cancel).await;
        }
        let image = choice.asked.clone();
        let mut packages = SessionPackages::prepare(&self.packages, image, &driver, &mut spec, instance);
        let plan = driver.plan(&spec, instance).map_err(LaunchError::from)?;
        let launched = Sandbox::launch(&driver, plan, instance).await;
        let sandbox = launched.map_err(|error| StartError::with_pipes(error, &found))?;
        packages.launched(sandbox.copies());
        let blob = guest::blob(&guest::Start {
            limits: sandbox.own_limits(),
            filter: sandbox.own_filter().map(<[u8]>::to_vec),
            wants_compiled: self.bytecode.keeps(),
            compiled: self.bytecode.load(&choice.root),
            installs: !self.packages.with().is_empty(),
        });
        let give_up = cancel.child_token();
        let start = Guest::start(sandbox, blob, driver.start_limit(START_LIMIT), &give_up);
        tokio::pin!(start);
        let (started, stalled) = tokio::select! {
            started = &mut start => (started, None),
            refusal = self.detector.stalls(choice) => {
                give_up.cancel();
                (start.await, Some(refusal))
            }
        };
        let (sandbox, error) = match started {
            Ok(mut guest) => {
                if let Some(offered) = guest.take_offered() {
                    self.bytecode.keep(&choice.root, &offered);
                }
                let digest = Digest::of(&choice.root, &driver, self.is_recorded);
                return Ok(Started { guest, packages, digest });
            }
            Err(failed) => failed,
        };
        if let (Some(refusal), StartError::Stopped) = (stalled, &error) {
            sandbox.end_later();
            return Err(StartError::Refused(refusal));
        }
        if let Err(error) = sandbox.end().await {
            tracing::warn!(%error, "a sandbox that did not start was left behind");
        }
        Err(error)
    }

    /// Starts a spare with what the last session was started with.
    async fn start_spare(self: Arc<Self>, choice: Choice) -> Option<Spare> {
        let instance = self.instance.get()?;
        let launch = self.prepare(&choice, instance, |_| true).await;
        let purpose = self.purpose_of(&launch)?;
        tracing::debug!("starting a spare sandbox");
        self.spares.begins(&purpose);
        // Nobody waits for its progress.
        let (progress, _) = mpsc::channel(1);
        let begun = Instant::now();
        let started = self.launch(launch, instance, &StartProgress::new(progress), self.spares.stop()).await;
        let failure = started.as_ref().err().map(StartError::kind);
        self.telemetry.sandbox_started(choice.runtime.kind.program_name(), begun.elapsed(), failure);
        match started {
            Ok(mut started) => {
                // What would run beside the first call runs now. One that is gone by now is noticed when a session wants it.
                let stop = self.spares.stop();
                tokio::select! {
                    _ = async { tokio::join!(started.guest.load_ahead(), started.digest.asked()) } => {}
                    () = stop.cancelled() => {}
                }
                Some(Spare::new(purpose, started, Arc::clone(instance)))
            }
            Err(error) => {
                tracing::info!(%error, "could not start a spare sandbox");
                None
            }
        }
    }

    /// Returns what calls were not told yet about the shares.
    fn new_notices_of_shares(&self, sandbox: &Sandbox, found: &[(PathBuf, Oddities)]) -> Vec<String> {
        let mut told = self.told_of_shares.lock().unwrap_or_else(PoisonError::into_inner);
        notices_of_shares(sandbox, found).into_iter().filter(|notice| told.insert(notice.clone())).collect()
    }

    /// Returns what the first result says once.
    fn notices(&self, choice: &Choice) -> Vec<String> {
        if self.has_noticed.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let fallback = choice.fallback.then(|| {
            format!(
                "the image {} is unavailable: the Python of this machine is used instead (set {} to an image, or to 'host:' to hide this notice)",
                self.image, self.image_setting
            )
        });
        let notices: Vec<String> = fallback.into_iter().chain(self.unused_options(choice)).collect();
        // The call that started it says it too.
        notices.iter().for_each(|text| tracing::info!("{text}"));
        notices
    }

    /// Says that the security options of the user are not in force.
    fn unused_options(&self, choice: &Choice) -> Option<String> {
        let options = self.template.security_options.join(" ");
        let kind = choice.runtime.kind;
        let refused = choice.refused_options.first();
        match (refused, kind) {
            _ if options.is_empty() => None,
            (Some((target, refusal)), _) => {
                Some(format!("{target} refused --security-opt {options}, so {kind} is used: {refusal}"))
            }
            (None, RuntimeKind::Crun | RuntimeKind::Runc | RuntimeKind::Kubernetes) => {
                Some(format!("{kind} does not use --security-opt {options}: only podman and docker do"))
            }
            (None, _) => None,
        }
    }

    fn probe(&self, instance: &Instance) -> Probe {
        let argv = ["python3", "-B", "-c", guest::PROBE].map(String::from).to_vec();
        Probe {
            template: self.template.spec(instance, argv),
            pod_argv: ["python3", "-B", "-c", &guest::pod_probe()].map(String::from).to_vec(),
            peer_argv: ["python3", "-B", "-c", guest::POD_PEER].map(String::from).to_vec(),
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
        // A diagnosis shows no progress.
        let (progress, _) = mpsc::channel(1);
        let roots = Provider::new(&self.images, instance, &StartProgress::new(progress));
        let stop = CancellationToken::new();
        Ok(self.detector.examine(&self.probe(instance), &roots, instance, &stop).await)
    }

    /// Returns the last launch that failed although its probe had run.
    pub fn setback(&self) -> Option<codebridge_runtimes::Setback> {
        self.detector.setback()
    }

    /// Removes what is left of this bridge's sandboxes, and its folder.
    pub async fn close(&self) {
        let Some(instance) = self.instance.get() else { return };
        self.spares.close().await;
        self.detector.close().await;
        self.sweeps.close();
        if tokio::time::timeout(SWEEP_LIMIT, self.sweeps.wait()).await.is_err() {
            tracing::debug!("gave up the search for sandboxes of dead bridges");
        }
        let swept = reclaim_instance(instance).await;
        for error in swept.failed {
            tracing::error!(%error, "a sandbox was left behind");
        }
    }
}

/// A sandbox that is about to be launched.
struct Launch<'a> {
    choice: &'a Choice,
    driver: Arc<AnyDriver>,
    spec: SandboxSpec,
    /// What is odd in the shares.
    found: Vec<(PathBuf, Oddities)>,
}

/// Returns what the bridge may do with podman machines.
fn machines(settings: &Settings) -> MachinePolicy {
    MachinePolicy {
        init: settings.machine_init.value,
        rootful: settings.machine_rootful.value,
        idle: settings.runtime_idle_timeout.value,
        supervisor: crate::machine_supervisor::command(),
        share: Some(settings.state_dir.value.clone()),
    }
}

/// Returns `$XDG_CACHE_HOME/codebridge`, or its usual place.
pub fn cache_dir() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("codebridge"))
}
