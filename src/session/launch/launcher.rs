//! Starts interpreters: the state folder, the choice of a runtime, the sandbox.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use codebridge_images::ImageResolver;
use codebridge_runtimes::exec::visible_line;
use codebridge_runtimes::{
    AnyDriver, Choice, Detector, HostFolder, Instance, LaunchError, MachinePolicy, Oddities, Owner, Probe,
    ProbeReport, RootFs, RuntimeId, RuntimeKind, Sandbox, SandboxSpec, StateDir, StateError, look_at,
    random_hex, reclaim_instance, sweep,
};
use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::roots::{Image, Provider, to_compile, wanted_roots};
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
use crate::session::interpreter::{Interpreter, StartError, Startup};
use crate::session::recording::MadeOf;
use crate::settings::{Settings, variables};
use crate::telemetry::Telemetry;

/// How long a sandbox may take to start, on a loaded host.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the end of the bridge waits for a sweep. The sweep may be on an engine that hangs, and the next bridge sweeps
/// again.
const SWEEP_LIMIT: Duration = Duration::from_secs(1);
/// How many files and folders of all shares are looked at before a session, which takes 50 to 100 ms.
const MOST_LOOKED_AT: usize = 20_000;
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
        Self {
            image_setting: settings.name_of(&variables::IMAGE),
            image_path: settings.image.path().map(PathBuf::from),
            image: roots.first().map(ToString::to_string).unwrap_or_default(),
            template: Template::of(settings),
            detector: Detector::new(runtime, roots, &settings.security_opt, machines(settings), cache_dir()),
            state: StateDir::usual(),
            images: Arc::new(image_resolver(false)),
            bytecode: GuestBytecode::at(cache_dir().map(|dir| dir.join("guest"))),
            packages,
            telemetry,
            workers: Arc::default(),
            instance: OnceCell::new(),
            reaper,
            has_noticed: AtomicBool::new(false),
            told_of_shares: Mutex::default(),
            swept_engines: Mutex::default(),
            sweeps: TaskTracker::new(),
        }
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
        &self,
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
        if started.is_err() {
            // Sandboxes of dead bridges may be in the way.
            self.sweep_in_the_background(None);
        }
        started
    }

    async fn start_on_any(
        &self,
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
        &self,
        choice: &Choice,
        instance: &Arc<Instance>,
        answerer: &Arc<Answerer>,
        access: &Arc<ServerAccess>,
        progress: &StartProgress,
        cancel: &CancellationToken,
    ) -> Result<(Interpreter, Vec<String>), StartError> {
        let driver = Arc::new(AnyDriver::new(choice.runtime.clone()));
        let mut spec = self.template.spec(instance, guest::argv());
        spec.shares.retain(|share| access.has_share(&share.target));
        spec.root = choice.root.clone();
        spec.env.splice(0..0, choice.env.iter().cloned());
        spec.volumes.clone_from(&choice.volumes);
        if let Some(compiling) = to_compile(&choice.root) {
            progress.report("compiling the standard library of the image, once".into());
            compile_library(compiling, &driver, &spec, instance, cancel).await;
        }
        let image = choice.asked.clone();
        let mut packages = SessionPackages::prepare(&self.packages, image, &driver, &mut spec, instance);
        let found = copy_pipes(&driver, &mut spec).await;
        let plan = driver.plan(&spec, instance).map_err(LaunchError::from)?;
        let launched = Sandbox::launch(&driver, plan, instance).await;
        let sandbox = launched.map_err(|error| StartError::with_pipes(error, &found))?;
        packages.launched(sandbox.copies());
        let shares = self.notices_of_shares(&sandbox, &found);
        let blob = guest::blob(&guest::Start {
            limits: sandbox.own_limits(),
            filter: sandbox.own_filter().map(<[u8]>::to_vec),
            wants_compiled: self.bytecode.keeps(),
            compiled: self.bytecode.load(&choice.root),
            installs: !self.packages.with().is_empty(),
        });
        let saved = answerer.tools().load();
        let notices = saved.notices().chain(shares).collect();
        let startup = Startup {
            guest: blob,
            saved_tools: saved.tools,
            answerer: Arc::clone(answerer),
            access: Arc::clone(access),
            memory_limit: self.template.limits.memory,
            made_of: made_of(choice, &driver, access.is_recorded()),
        };
        let give_up = cancel.child_token();
        let start = Interpreter::start(sandbox, startup, driver.start_limit(START_LIMIT), &give_up);
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
                access.set_packages(packages);
                return Ok((interpreter, notices));
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

    /// Returns what calls were not told yet about files that code cannot read in shares, and about copies.
    fn notices_of_shares(&self, sandbox: &Sandbox, found: &[(PathBuf, Oddities)]) -> Vec<String> {
        let name = |path: &Path| visible_line(&path.to_string_lossy());
        let is_copied = |path: &Path| sandbox.copied().iter().any(|(copy, _)| copy == path);
        let copies = found.iter().filter(|(path, _)| is_copied(path)).map(|(path, odd)| {
            let why = match odd.pipes.is_empty() {
                false => "it has named pipes, which a read-only mount cannot protect",
                true => "it cannot be mounted with another owner, by its file system or kernel",
            };
            format!("the shared folder '{}' is copied, because {why}", name(path))
        });
        // A copy knows what it lacks.
        let copied = sandbox.copied();
        let live = found.iter().filter(|(path, _)| !is_copied(path));
        let live = live.map(|(path, odd)| (path, &odd.unread));
        let unread = live.chain(copied.iter().map(|(path, unread)| (path, unread)));
        let unread = unread
            .filter(|(_, names)| !names.is_empty())
            .map(|(path, names)| format!("code cannot read in the shared folder '{}': {names}", name(path)));
        let mut told = self.told_of_shares.lock().unwrap_or_else(PoisonError::into_inner);
        copies.chain(unread).filter(|notice| told.insert(notice.clone())).collect()
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

/// Looks at the shares that a sandbox would see as mounts, and has those with named pipes copied: a pipe can be written to on a
/// read-only mount too. Returns what was found.
async fn copy_pipes(driver: &AnyDriver, spec: &mut SandboxSpec) -> Vec<(PathBuf, Oddities)> {
    let shares: Vec<_> = spec.shares.iter().map(|share| share.source.clone()).collect();
    if shares.is_empty() || driver.share_mechanism(spec.user).is_copy() {
        return Vec::new();
    }
    let most = MOST_LOOKED_AT / shares.len();
    let look = move |path: PathBuf| Some((path.clone(), look_at(&path, most).ok()?));
    let looking = tokio::task::spawn_blocking(move || shares.into_iter().filter_map(look).collect());
    let found: Vec<_> = looking.await.unwrap_or_default();
    let has_pipes =
        |share: &HostFolder| found.iter().any(|(path, odd)| *path == share.source && !odd.pipes.is_empty());
    (spec.copied_shares, spec.shares) = std::mem::take(&mut spec.shares).into_iter().partition(has_pipes);
    found
}

/// Returns what the audit log says of a sandbox.
fn made_of(choice: &Choice, driver: &Arc<AnyDriver>, is_recorded: bool) -> MadeOf {
    let digest = Arc::<OnceLock<String>>::default();
    if let Some(lease) = choice.root.lease() {
        let _ = digest.set(lease.id());
    }
    if let RootFs::Image(reference) = &choice.root
        && is_recorded
    {
        // The engine takes longer to say it than code needs to start.
        let (driver, reference, digest) = (Arc::clone(driver), reference.clone(), Arc::clone(&digest));
        tokio::spawn(async move {
            if let Some(found) = driver.image_digest(&reference).await {
                let _ = digest.set(found);
            }
        });
    }
    let runtime = choice.runtime.to_string().into();
    MadeOf { runtime, image: choice.asked.as_str().into(), digest }
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
