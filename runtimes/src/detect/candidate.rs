//! Tries one runtime with one root filesystem.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::choice::{Choice, Probe};
use super::peer::Peer;
use super::provider::{EngineImage, RootProvider, WantedImage, WantedRoot};
use crate::driver::AnyDriver;
use crate::engine::{COMMAND_LIMIT, EngineDriver, EngineInfo};
use crate::exec::{self, CommandLine, ExecError};
use crate::kube::{KubeDriver, PodProbe, Walls};
use crate::machine::Machines;
use crate::plan::{End, HeldLimits, LaunchError, PlanError};
use crate::refusal::Refusal;
use crate::runtime::{CgroupMode, RuntimeId, RuntimeKind, Target};
use crate::sandbox::Sandbox;
use crate::spec::{RootFs, SandboxSpec};
use crate::state::Instance;

/// The search path for programs when the image does not set one.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// More than any expected output.
const OUTPUT_LIMIT: u64 = 4096;

pub(super) struct Trial<'a, P> {
    pub(super) machines: &'a Machines,
    pub(super) probe: &'a Probe,
    pub(super) provider: &'a P,
    pub(super) instance: &'a Arc<Instance>,
    pub(super) stop: &'a CancellationToken,
}

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) target: Target,
    pub(super) program: Option<PathBuf>,
    /// The report of the engine, which is asked once.
    pub(super) engine: Option<Result<EngineInfo, Refusal>>,
}

impl Candidate {
    pub(super) fn in_path(target: Target) -> Self {
        let program = exec::find_program(Path::new(target.kind.program_name()));
        Self { target, program, engine: None }
    }

    /// Returns the first line of `--version`.
    pub(super) async fn version(&self) -> Option<String> {
        let words: &[&str] = match self.target.kind {
            RuntimeKind::Kubernetes => &["version", "--client"],
            _ => &["--version"],
        };
        let command = CommandLine::new(self.program.as_ref()?).args(words);
        let done = exec::run(command, Duration::from_secs(10)).await.ok()?.success().ok()?;
        Some(String::from_utf8_lossy(&done.stdout).lines().next()?.to_string())
    }

    /// Runs the probe with this root, in each mode in which this runtime might work here, best first.
    pub(super) async fn probe<P: RootProvider>(
        &mut self,
        wanted: &WantedRoot<P::Image>,
        rank: usize,
        trial: &Trial<'_, P>,
    ) -> Result<Choice, Refusal> {
        let Trial { machines, probe, provider, instance, stop } = trial;
        let program = self.program.clone().ok_or(Refusal::NotInstalled)?;
        let mut last = None;
        // Commands that ask or pull leave nothing behind, so they can be cancelled at any time.
        let preparing = async {
            let mut modes = self.modes(&program, trial).await?;
            let root = self.root(wanted, *provider, &modes[0]).await?;
            let mut volumes = Vec::new();
            if let (AnyDriver::Engine(driver), RootFs::Image(image)) =
                (AnyDriver::new(modes[0].clone()), &root.0)
            {
                volumes = driver.volumes(image).await.map_err(|error| refusal_of(&error))?;
                if !driver.profile_arrives() {
                    let shared = machines.shares.look(&driver, image, instance).await;
                    modes.iter_mut().for_each(|mode| mode.shared.clone_from(&shared));
                }
            }
            Ok((modes, root, volumes))
        };
        let (mut modes, (root, env), volumes) = tokio::select! {
            prepared = preparing => prepared?,
            () = stop.cancelled() => return Err(Refusal::Stopped),
        };
        while !modes.is_empty() {
            let runtime = modes.remove(0);
            let driver = Arc::new(AnyDriver::new(runtime.clone()));
            let mut spec = SandboxSpec { root: root.clone(), ..probe.template.clone() };
            // A folder that cannot be mounted says nothing about the runtime, and a copy takes time.
            (spec.folders, spec.shares) = (Vec::new(), Vec::new());
            spec.name = instance.next_name();
            spec.env.splice(0..0, env.iter().cloned());
            spec.volumes.clone_from(&volumes);
            if let AnyDriver::Kube(kube) = &*driver {
                spec.argv.clone_from(&probe.pod_argv);
                spec.knows_addresses = true;
                kube.ensure_policy().await;
            }
            match run_probe(&driver, &spec, probe, instance, stop).await {
                Ok((held, walls)) => {
                    let (asked, fallback) = (wanted.to_string(), rank > 0);
                    let refused_options = Vec::new();
                    return Ok(Choice {
                        runtime,
                        root,
                        asked,
                        env,
                        volumes,
                        held,
                        walls,
                        fallback,
                        refused_options,
                        rank,
                    });
                }
                Err(refusal) => {
                    modes.extend(other_mode(&runtime, &refusal));
                    match &last {
                        Some(before) if !refusal.says_more_than(before) => {}
                        _ => last = Some(refusal),
                    }
                }
            }
        }
        Err(last.unwrap_or(Refusal::NotInstalled))
    }

    /// Runs the probe with these roots in their order, until it works with one. Returns that choice, or the first root and why
    /// it was refused; None without roots.
    pub(super) async fn probe_all<P: RootProvider>(
        &mut self,
        roots: &[WantedRoot<P::Image>],
        trial: &Trial<'_, P>,
    ) -> Option<Result<Choice, (String, Refusal)>> {
        let mut first = None;
        for (rank, root) in roots.iter().enumerate() {
            match self.probe(root, rank, trial).await {
                Ok(choice) => return Some(Ok(choice)),
                Err(refusal) => first = first.or_else(|| Some((root.to_string(), refusal))),
            }
        }
        first.map(Err)
    }

    /// Returns the modes in which this runtime may work on this host, best first; at least one.
    async fn modes<P: RootProvider>(
        &mut self,
        program: &Path,
        trial: &Trial<'_, P>,
    ) -> Result<Vec<RuntimeId>, Refusal> {
        let mode = |cgroups| RuntimeId::at(&self.target, program, cgroups);
        match self.target.kind {
            RuntimeKind::Podman | RuntimeKind::Docker => {
                let mut id = mode(CgroupMode::Direct);
                if self.engine.is_none() {
                    self.engine = Some(ask_with_machine(&id, trial).await);
                }
                let info = self.engine.clone().unwrap_or(Err(Refusal::NotInstalled));
                let info = match (info, self.target.kind) {
                    // podman on a hybrid host answers only with another low-level runtime.
                    (Err(Refusal::HybridCgroups), RuntimeKind::Podman) if id.address.is_usual() => {
                        id.oci_runtime =
                            Some(exec::find_program(Path::new("runc")).ok_or(Refusal::HybridCgroups)?);
                        ask_engine(&EngineDriver::new(id.clone()), COMMAND_LIMIT).await?
                    }
                    (info, _) => info?,
                };
                id.remote = EngineDriver::new(id.clone()).is_remote(&info).await;
                if !info.limits {
                    id.cgroups = CgroupMode::Unmanaged;
                    id.ids = info.ids;
                }
                Ok(vec![id])
            }
            RuntimeKind::Kubernetes => {
                let id = RuntimeId { remote: true, ..mode(CgroupMode::Direct) };
                KubeDriver::new(id.clone()).check_access().await?;
                Ok(vec![id])
            }
            RuntimeKind::Crun | RuntimeKind::Runc if rustix::process::getuid().is_root() => {
                Ok(vec![mode(CgroupMode::Direct), mode(CgroupMode::Unmanaged)])
            }
            RuntimeKind::Crun | RuntimeKind::Runc => {
                let delegated = Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
                    && std::env::var_os("XDG_RUNTIME_DIR")
                        .is_some_and(|dir| Path::new(&dir).join("bus").exists());
                let systemd = delegated.then(|| mode(CgroupMode::Systemd));
                Ok(systemd.into_iter().chain([mode(CgroupMode::Unmanaged)]).collect())
            }
        }
    }

    /// Makes the root available to this runtime, and returns it with its environment.
    async fn root<P: RootProvider>(
        &self,
        wanted: &WantedRoot<P::Image>,
        provider: &P,
        runtime: &RuntimeId,
    ) -> Result<(RootFs, Vec<(String, String)>), Refusal> {
        let elsewhere = || {
            let message = "it is on this machine and the engine runs on another".into();
            Err(Refusal::RootElsewhere { message })
        };
        let image = match wanted {
            WantedRoot::Directory(_) | WantedRoot::Host if runtime.remote => return elsewhere(),
            WantedRoot::Directory(path) => {
                return Ok((RootFs::Directory(path.clone()), with_path(Vec::new())));
            }
            WantedRoot::Host => return Ok((RootFs::Host, with_path(Vec::new()))),
            WantedRoot::Image(image) => image,
        };
        if runtime.kind == RuntimeKind::Kubernetes {
            return match image.in_engine(runtime.kind) {
                // Nodes pull it when the first pod starts.
                Some(EngineImage::Pullable(reference)) => Ok((RootFs::Image(reference.into()), Vec::new())),
                _ => elsewhere(),
            };
        }
        if let AnyDriver::Engine(driver) = AnyDriver::new(runtime.clone()) {
            match image.in_engine(runtime.kind) {
                Some(EngineImage::Pullable(reference)) => {
                    return Ok((RootFs::Image(ensure_image(&driver, reference).await?), Vec::new()));
                }
                Some(EngineImage::Stored(reference)) => {
                    let name = driver.resolve_local(reference).await.map_err(|error| refusal_of(&error))?;
                    let missing = || Refusal::ImageMissing {
                        image: image.to_string(),
                        message: String::new(),
                        hint: None,
                    };
                    return Ok((RootFs::Image(name.ok_or_else(missing)?), Vec::new()));
                }
                None if runtime.remote => return elsewhere(),
                None => {}
            }
        }
        let provided = provider.root(image).await?;
        Ok((RootFs::Leased(provided.lease), with_path(provided.env)))
    }
}

/// Adds a search path to an environment that has none.
pub(super) fn with_path(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    if !env.iter().any(|(key, _)| key == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    env
}

/// Returns another mode that a refusal suggests.
fn other_mode(runtime: &RuntimeId, refusal: &Refusal) -> Option<RuntimeId> {
    let hybrid = *refusal == Refusal::HybridCgroups && runtime.kind == RuntimeKind::Podman;
    // A client of a service cannot choose what the service starts.
    if !hybrid || runtime.remote || runtime.oci_runtime.is_some() {
        return None;
    }
    // crun, podman's default, refuses here; runc does not.
    let runc = exec::find_program(Path::new("runc"))?;
    Some(RuntimeId { oci_runtime: Some(runc), ..runtime.clone() })
}

/// Asks an engine for its report; starts the machine that podman needs for it.
async fn ask_with_machine<P: RootProvider>(
    id: &RuntimeId,
    trial: &Trial<'_, P>,
) -> Result<EngineInfo, Refusal> {
    let driver = EngineDriver::new(id.clone());
    let refusal = match ask_engine(&driver, COMMAND_LIMIT).await {
        Ok(info) => return Ok(info),
        Err(refusal) => refusal,
    };
    let announce = |text: &str| trial.provider.announce(text);
    match trial.machines.ensure(&driver, &refusal, &announce).await {
        None => Err(refusal),
        Some(Err(refusal)) => Err(refusal),
        Some(Ok(())) => ask_engine(&driver, COMMAND_LIMIT).await,
    }
}

pub(super) async fn ask_engine(driver: &EngineDriver, limit: Duration) -> Result<EngineInfo, Refusal> {
    let done = driver.info(limit).await.map_err(|error| refusal_of(&error))?;
    match driver.parse_info(&done.stdout) {
        Some(info) if done.status.success() => Ok(info),
        _ => {
            let said = [done.stderr_text(), String::from_utf8_lossy(&done.stdout).trim().to_string()];
            let text = said.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
            Err(driver.explain(End::Exited(done.status.code().unwrap_or(-1)), &text))
        }
    }
}

/// Returns the name by which the engine has the image, after a pull if it is needed.
async fn ensure_image(driver: &EngineDriver, reference: &str) -> Result<String, Refusal> {
    if let Some(name) = driver.resolve_local(reference).await.map_err(|error| refusal_of(&error))? {
        return Ok(name);
    }
    tracing::info!(image = reference, engine = %driver.id(), "pulling an image");
    driver.pull(reference).await.map_err(|error| {
        tracing::debug!(image = reference, engine = %driver.id(), %error, "could not pull the image");
        match error {
            ExecError::Failed(failed) => driver.explain_pull(reference, &failed.stderr_tail),
            other => Refusal::ImageMissing {
                image: reference.to_string(),
                message: format!("cannot pull {reference}: {other}"),
                hint: None,
            },
        }
    })
}

/// Returns the refusal for a command that did not run at all.
fn refusal_of(error: &ExecError) -> Refusal {
    match error {
        ExecError::Start { source, .. } => Refusal::of_start(source),
        ExecError::TimedOut { .. } => Refusal::TimedOut { message: error.to_string() },
        _ => Refusal::Other { message: error.to_string() },
    }
}

/// Returns what a probe showed that did its work; None when it did not.
async fn verdict_on(
    driver: &AnyDriver,
    output: &[u8],
    end: End,
    probe: &Probe,
    no_peer: Option<String>,
) -> Option<Result<Option<Walls>, Refusal>> {
    if end != End::Exited(0) {
        return None;
    }
    let AnyDriver::Kube(kube) = driver else { return (output == probe.expected).then_some(Ok(None)) };
    let seen = PodProbe::parse(output, &probe.expected)?;
    let (has_policy, missing_rights) = tokio::join!(kube.ensure_policy(), kube.missing_rights());
    Some(seen.walls(has_policy, no_peer).map(|walls| Some(Walls { missing_rights, ..walls })))
}

async fn run_probe(
    driver: &Arc<AnyDriver>,
    spec: &SandboxSpec,
    probe: &Probe,
    instance: &Arc<Instance>,
    stop: &CancellationToken,
) -> Result<(HeldLimits, Option<Walls>), Refusal> {
    let launch_refusal = |error: LaunchError| match error {
        LaunchError::Exec(error) => refusal_of(&error),
        LaunchError::Plan(PlanError::Root(error)) => {
            Refusal::RootUnreachable { message: error.to_string(), problem: error.problem() }
        }
        other => Refusal::Other { message: other.to_string() },
    };
    let plan = driver.plan(spec, instance).map_err(|error| launch_refusal(error.into()))?;
    let mut sandbox = Sandbox::launch(driver, plan, instance).await.map_err(launch_refusal)?;
    let held = sandbox.held();
    let filter = sandbox.own_filter().map(hex::encode);
    // In a pod it stays open: the end of the input may overtake the output on its way.
    let stdin = sandbox.take_stdin().filter(|_| filter.is_some());
    let never_starts = sandbox.never_starts();
    let limit = driver.start_limit(probe.limit);
    let mut stdout = sandbox.take_stdout().map(|stdout| stdout.take(OUTPUT_LIMIT));
    let (mut peer, mut no_peer) = (Peer::default(), None);
    let run = async {
        let mut output = Vec::new();
        let mut stdin = stdin;
        if let (Some(filter), Some(stdin), Some(stdout)) = (filter, &mut stdin, &mut stdout) {
            // A probe that does not read it shows that by what it prints.
            let _ = stdin.write_all(format!("{filter}\n").as_bytes()).await;
            let _ = stdout.read_buf(&mut output).await;
            // The pod has started once it prints something: a quota may allow one.
            let place = match output.is_empty() {
                true => Ok(String::new()),
                false => peer.start(driver, spec, probe, instance).await,
            };
            let place = place.inspect_err(|why| no_peer = Some(why.clone())).unwrap_or_default();
            let _ = stdin.write_all(format!("{place}\n").as_bytes()).await;
        }
        if let Some(stdout) = &mut stdout {
            let _ = stdout.read_to_end(&mut output).await;
        }
        let ended = sandbox.wait().await;
        drop(stdin);
        (output, ended)
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(limit, run) => Some(Ok(ended)),
        refusal = never_starts => Some(Err(refusal)),
        () = stop.cancelled() => None,
    };
    peer.end().await;
    let verdict = match ended {
        None => Err(Refusal::Stopped),
        Some(Err(refusal)) => Err(refusal),
        Some(Ok(Ok((output, Ok(end))))) => match verdict_on(driver, &output, end, probe, no_peer).await {
            Some(verdict) => verdict.map(|walls| (held, walls)),
            None => Err(sandbox.explain(end).await),
        },
        Some(Ok(Ok((_, Err(error))))) => Err(Refusal::Other { message: error.to_string() }),
        Some(Ok(Err(_))) => {
            let message = sandbox.with_messages(&format!("the probe did not end within {limit:?}"));
            Err(Refusal::TimedOut { message })
        }
    };
    if let Err(error) = sandbox.end().await {
        tracing::warn!(%error, "could not remove a probe sandbox");
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_starts_is_not_chosen_by_its_client() {
        let target = Target { kind: RuntimeKind::Podman, connection: Some("far".into()) };
        let id = RuntimeId { remote: true, ..RuntimeId::at(&target, "/usr/bin/podman", CgroupMode::Direct) };
        assert_eq!(other_mode(&id, &Refusal::HybridCgroups), None);
        // Earlier versions recorded sandboxes with a choice that such a client refuses.
        let recorded = RuntimeId { oci_runtime: Some("/usr/sbin/runc".into()), ..id };
        let command = EngineDriver::new(recorded).engine().arg("ps");
        assert_eq!(command.to_string(), "/usr/bin/podman --connection far ps");
    }
}
