//! A launched sandbox: its pipes, the messages of its runtime, its end.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

use crate::copies::Copies;
use crate::driver::AnyDriver;
use crate::exec::{self, ExecError, StreamTail, printable};
use crate::folders::{LeftOut, Supplies};
use crate::kube::Look;
use crate::memory::{Allowed, Counted, MemoryWatch};
use crate::plan::{End, HeldLimits, LaunchError, Mechanism, Plan, ReclaimError};
use crate::processor::Meter;
use crate::refusal::Refusal;
use crate::rlimits::OwnLimits;
use crate::spec::SandboxName;
use crate::state::{Instance, Record};

/// The time within which a kill has to be complete.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(2);
/// How long a sandbox may take to exit by itself after its input closes.
const LEAVE_LIMIT: Duration = Duration::from_millis(300);
/// The pauses between attempts to remove a sandbox: about a quarter of an hour together.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The pauses between questions why a pod does not start, and how long it may wait for a node.
const PENDING_PAUSE: Duration = Duration::from_secs(2);
const PENDING_PATIENCE: Duration = Duration::from_secs(20);
/// How long a node may take to say that it has taken its pod, and an API server to answer at all.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// The pauses between questions whether an engine elsewhere still has a sandbox; each is a process and a connection.
const CONNECTION_PAUSE: Duration = Duration::from_secs(5);

/// Why a sandbox that ran is gone, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub reason: String,
    pub hint: Option<String>,
}

/// A launched sandbox. Dropping it leaves it running: call [`Sandbox::end`].
#[derive(Debug)]
pub struct Sandbox {
    /// With the lease on its root, which is held until the sandbox is gone.
    record: Record,
    held: HeldLimits,
    own_limits: OwnLimits,
    own_filter: Option<Vec<u8>>,
    driver: Arc<AnyDriver>,
    instance: Arc<Instance>,
    child: Child,
    /// The end of the standard error of its runtime.
    messages: StreamTail,
    collector: Option<JoinHandle<()>>,
    memory: Option<MemoryWatch>,
    /// The folders that it has copies of, and what each copy lacks.
    copied: Vec<(PathBuf, LeftOut)>,
    copies: Option<Copies>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
}

impl Sandbox {
    /// Carries out a plan as far as a running runtime process. Whether the sandbox's own program runs shows on its standard
    /// output, or in the end of that process: see [`Sandbox::wait`] and [`Sandbox::explain`].
    pub async fn launch(
        driver: &Arc<AnyDriver>,
        plan: Plan,
        instance: &Arc<Instance>,
    ) -> Result<Self, LaunchError> {
        instance.record(&plan.record)?;
        let undo = |error| {
            instance.forget(&plan.record.name);
            error
        };
        if let Some(root) = &plan.root {
            instance.ensure_skeleton(root).map_err(|error| undo(error.into()))?;
        }
        for (path, content) in &plan.files {
            write_plan_file(path, content)
                .map_err(|source| undo(LaunchError::Write { path: path.clone(), source }))?;
        }
        for (path, target) in &plan.aliases {
            write_alias(path, target)
                .map_err(|source| undo(LaunchError::Write { path: path.clone(), source }))?;
        }
        if let AnyDriver::Engine(engine) = &**driver {
            engine.prepare_image(&plan).await.map_err(|error| undo(error.into()))?;
        }
        let copied = match &**driver {
            AnyDriver::Engine(engine) if !plan.volumes.is_empty() => {
                let made = engine.make_volumes(&plan, instance.owner()).await;
                if made.is_err() {
                    let _ = engine.remove_volumes(&plan.record.name).await;
                }
                made.map_err(|error| undo(error.into()))?
            }
            _ => Vec::new(),
        };
        let mut supplies = Supplies::prepare(&plan.supplied).await.map_err(|error| undo(error.into()))?;
        let child =
            supplies.spawn(&plan.command, plan.folder.as_deref()).map_err(|error| undo(error.into()))?;
        supplies.copied.extend(copied);
        Ok(Self::around(child, plan, supplies.copied, Arc::clone(driver), Arc::clone(instance)))
    }

    fn around(
        mut child: Child,
        plan: Plan,
        copied: Vec<(PathBuf, LeftOut)>,
        driver: Arc<AnyDriver>,
        instance: Arc<Instance>,
    ) -> Self {
        let messages = StreamTail::default();
        let counted = match plan.held {
            HeldLimits { memory: Mechanism::Watch, .. } => Some(Counted::All),
            HeldLimits { sockets: Mechanism::Watch, .. } => Some(Counted::NetworkSockets),
            _ => None,
        };
        let memory = counted.map(|counted| {
            let (driver, name, own) = (Arc::clone(&driver), plan.record.name.clone(), child.id());
            let allowed = Allowed { memory: plan.memory, counted, folders: plan.folders };
            MemoryWatch::start(allowed, move || {
                let (driver, name) = (Arc::clone(&driver), name.clone());
                async move { driver.parent_of_first(&name, own).await }
            })
        });
        let collector = child.stderr.take().map(|stderr| tokio::spawn(messages.clone().collect(stderr)));
        let copies = Copies::of(&driver, &instance, &plan.record.name, plan.volumes);
        Self {
            record: plan.record,
            held: plan.held,
            own_limits: plan.own_limits,
            own_filter: plan.own_filter,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            driver,
            instance,
            child,
            messages,
            collector,
            memory,
            copied,
            copies,
        }
    }

    /// Returns each share that was copied, and what the copy lacks.
    pub fn copied(&self) -> &[(PathBuf, LeftOut)] {
        &self.copied
    }

    pub fn name(&self) -> &SandboxName {
        &self.record.name
    }

    pub fn held(&self) -> HeldLimits {
        self.held
    }

    /// Returns the limits that its program has to set on itself before it runs foreign code.
    pub fn own_limits(&self) -> OwnLimits {
        self.own_limits
    }

    /// Returns the seccomp filter that its program has to install before it runs foreign code, as an array of `sock_filter`.
    pub fn own_filter(&self) -> Option<&[u8]> {
        self.own_filter.as_deref()
    }

    /// Sets whether code runs in it: then its memory is checked more often, where nothing else holds the limit.
    pub fn set_busy(&self, busy: bool) {
        if let Some(watch) = &self.memory {
            watch.set_busy(busy);
        }
    }

    /// Returns how its processor time and its memory are read; None where this host does not see its processes. An engine may be asked.
    pub fn meter(&self) -> impl Future<Output = Option<Meter>> + Send + 'static {
        let (driver, name, own) = (Arc::clone(&self.driver), self.name().clone(), self.child.id());
        async move {
            if driver.id().remote {
                return None;
            }
            let parent = driver.parent_of_first(&name, own).await?;
            tokio::task::spawn_blocking(move || Meter::below(parent)).await.ok()?
        }
    }

    /// Returns how many of its processes were killed because all together used more memory than the limit; only where no
    /// control group holds it.
    pub fn killed_for_memory(&self) -> u32 {
        self.memory.as_ref().map_or(0, MemoryWatch::kills)
    }

    /// Returns why it was ended from outside; only where its files are watched.
    pub fn ended_because(&self) -> Option<String> {
        Some(self.memory.as_ref()?.ended()?.to_string())
    }

    /// Returns its copies of the host's folders, on an engine elsewhere; None where it sees the folders themselves.
    pub fn copies(&self) -> Option<Copies> {
        self.copies.clone()
    }

    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Returns why the runtime ended before the sandbox's program said anything, from the messages of the runtime.
    pub async fn explain(&self, end: End) -> Refusal {
        let of_messages = self.driver.explain(end, &printable(&self.messages.text()));
        match (&*self.driver, &of_messages) {
            // What kubectl itself says is clear, and the pod may not be there at all.
            (AnyDriver::Kube(driver), Refusal::Other { .. }) => {
                match driver.look(self.name().as_str(), false).await {
                    Look::Trouble(refusal) => refusal,
                    _ => of_messages,
                }
            }
            _ => of_messages,
        }
    }

    /// Returns why the sandbox is gone, where something else than the process of its runtime knows that: the status of a pod.
    /// `end` is how that process ended, if it did.
    pub async fn why_gone(&self, end: Option<End>) -> Option<Gone> {
        let AnyDriver::Kube(driver) = &*self.driver else { return None };
        let said = match (exec::visible_line(&printable(&self.messages.text())), end) {
            (said, _) if !said.is_empty() => said,
            (_, Some(End::Signalled(signal))) => format!("kubectl was ended by signal {signal}"),
            (said, _) => said,
        };
        Some(self.gone(&driver.why_gone(self.name().as_str(), &said).await))
    }

    /// Returns whether its connection can break without an end: it leads through other machines, each of which may be lost.
    pub fn can_fall_silent(&self) -> bool {
        matches!(&*self.driver, AnyDriver::Kube(_))
    }

    /// Returns why it does not answer, after it was asked in vain.
    pub async fn why_silent(&self) -> Gone {
        match &*self.driver {
            AnyDriver::Kube(driver) => self.gone(&driver.why_silent(self.name().as_str()).await),
            AnyDriver::Engine(_) | AnyDriver::Oci(_) => {
                Gone { reason: "the sandbox does not answer".into(), hint: None }
            }
        }
    }

    fn gone(&self, refusal: &Refusal) -> Gone {
        Gone { reason: refusal.to_string(), hint: Some(refusal.hint(self.driver.id().kind).into_owned()) }
    }

    /// Returns why the sandbox will not start, as soon as that is known. Only a cluster says so while its client waits; for
    /// other runtimes this never returns.
    pub fn never_starts(&self) -> impl Future<Output = Refusal> + Send + 'static {
        let (driver, name) = (Arc::clone(&self.driver), self.name().clone());
        let messages = self.messages.clone();
        async move {
            let AnyDriver::Kube(driver) = &*driver else { return std::future::pending().await };
            let (started, mut was_there, mut unanswered) = (Instant::now(), false, None);
            loop {
                tokio::time::sleep(PENDING_PAUSE).await;
                let said = printable(&messages.text());
                if let Some(refusal) = driver.lost_attach(&said) {
                    return refusal;
                }
                let patient = started.elapsed() < PENDING_PATIENCE;
                let look = driver.look(name.as_str(), patient).await;
                was_there |= matches!(look, Look::Fine(_) | Look::Ended(_) | Look::Untaken(_));
                let silence = match look {
                    Look::Trouble(refusal) => return refusal,
                    Look::Missing if was_there => return driver.why_deleted(name.as_str()).await,
                    // Of a program that has ended, its client says more.
                    Look::Missing | Look::Fine(_) | Look::Ended(_) => None,
                    Look::Untaken(node) => Some(Refusal::NodeLost { node, pod: name.as_str().into() }),
                    Look::Unknown(refusal) => Some(refusal),
                };
                match silence {
                    None => unanswered = None,
                    Some(refusal)
                        if unanswered.get_or_insert_with(Instant::now).elapsed() > ANSWER_PATIENCE =>
                    {
                        return refusal;
                    }
                    Some(_) => {}
                }
                if !patient && let Some(refusal) = driver.why_stuck(name.as_str()).await {
                    return refusal;
                }
            }
        }
    }

    /// Returns `text` with the messages of the runtime so far, and which engine it is when one was named.
    pub fn with_messages(&self, text: &str) -> String {
        let place = self.driver.id().place().map(|place| format!(" ({place})")).unwrap_or_default();
        match printable(&self.messages.text()) {
            messages if messages.is_empty() => format!("{text}{place}"),
            messages => format!("{text}: {messages}{place}"),
        }
    }

    pub async fn wait(&mut self) -> io::Result<End> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().await?;
        if let Some(collector) = self.collector.take() {
            // The last message may still be in the pipe; a helper process that keeps the pipe open is not waited for.
            let _ = tokio::time::timeout(Duration::from_millis(500), collector).await;
        }
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => End::Exited(code),
            (None, signal) => End::Signalled(signal.unwrap_or(0)),
        })
    }

    /// Returns why the sandbox is gone, once an engine elsewhere no longer has it or cannot be reached. For an engine here it
    /// never returns: its client ends with the sandbox. podman's client can wait for ever on an ssh connection that has broken.
    pub fn connection_lost(&self) -> impl Future<Output = String> + Send + 'static {
        let (driver, instance, name) =
            (Arc::clone(&self.driver), Arc::clone(&self.instance), self.name().clone());
        async move {
            if !driver.id().remote {
                std::future::pending::<()>().await;
            }
            let mut was_unreachable = false;
            loop {
                tokio::time::sleep(CONNECTION_PAUSE).await;
                if let Some(trouble) = driver.trouble(&name).await {
                    return trouble.to_string();
                }
                let answer = driver.is_gone(&name, &instance).await;
                let refusal = match &answer {
                    Err(ExecError::Failed(failed)) => {
                        Some(driver.explain(End::Exited(0), &failed.stderr_tail))
                    }
                    // An engine that is slow keeps its sandboxes.
                    _ => None,
                };
                let unreachable =
                    refusal.filter(|refusal| matches!(refusal, Refusal::DaemonUnreachable { .. }));
                let reason = match (answer, unreachable) {
                    (Ok(true), _) => "the sandbox went away".to_string(),
                    // A busy sshd turns away single connections.
                    (_, Some(refusal)) if was_unreachable => format!("the sandbox went away: {refusal}"),
                    (_, unreachable) => {
                        was_unreachable = unreachable.is_some();
                        continue;
                    }
                };
                // What the sandbox said last may still be on its way.
                tokio::time::sleep(KILL_LIMIT).await;
                return reason;
            }
        }
    }

    /// Ends the sandbox: closes its input, waits a moment for its exit, then kills and removes it by name, reaps the process of
    /// the runtime, and verifies all of it. Also to be called for a sandbox that ended by itself.
    pub async fn end(mut self) -> Result<(), ReclaimError> {
        drop(self.stdin.take());
        drop(self.stdout.take());
        let left = tokio::time::timeout(LEAVE_LIMIT, self.child.wait()).await.is_ok();
        if let Some(copies) = &self.copies {
            copies.close().await;
        }
        let gone = left && self.driver.is_gone(self.name(), &self.instance).await.unwrap_or(false);
        let result = match (&*self.driver, gone) {
            (AnyDriver::Engine(engine), true) if self.copies.is_some() => {
                engine.remove_volumes(self.name()).await
            }
            (_, true) => Ok(()),
            (_, false) => self.kill().await,
        };
        match &result {
            Ok(()) => self.instance.forget(self.name()),
            // An engine that is unreachable for a while comes back with its containers.
            Err(_) => drop(tokio::spawn(reclaim_later(self.driver, self.instance, self.record))),
        }
        result
    }

    /// Ends the sandbox in the background, when its engine does not answer.
    pub fn end_later(self) {
        tokio::spawn(async move {
            if let Err(error) = self.end().await {
                tracing::warn!(%error, "could not remove a sandbox yet");
            }
        });
    }

    async fn kill(&mut self) -> Result<(), ReclaimError> {
        let group = exec::group_of(&self.child);
        let result = self.driver.reclaim(self.name(), &self.instance).await;
        let left = tokio::time::timeout(KILL_LIMIT / 2, self.child.wait()).await.is_ok();
        if left && result.is_ok() {
            return Ok(());
        }
        exec::terminate(&mut self.child, group, Duration::from_millis(200)).await;
        // The runtime may have created something after the first removal.
        self.driver.reclaim(self.name(), &self.instance).await
    }
}

/// Tries again to remove a sandbox, less and less often; in the end a sweep has to do it.
async fn reclaim_later(driver: Arc<AnyDriver>, instance: Arc<Instance>, record: Record) {
    let name = &record.name;
    let mut pause = FIRST_PAUSE;
    while pause < LONGEST_PAUSE {
        tokio::time::sleep(pause).await;
        pause *= 2;
        match driver.reclaim(name, &instance).await {
            Ok(()) => {
                instance.forget(name);
                tracing::info!(sandbox = %name, "removed a sandbox that had been left behind");
                return;
            }
            Err(error) => tracing::debug!(%error, "could not remove a sandbox yet"),
        }
    }
}

/// Writes a file that sandboxes which start at the same time may share, so that nobody sees half of it.
fn write_plan_file(path: &Path, content: &str) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == content.as_bytes()) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let mut staging = tempfile::NamedTempFile::new_in(folder)?;
    staging.write_all(content.as_bytes())?;
    // A temporary file has mode 0600; engines that read the profile may run as another user.
    staging.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    staging.persist(path)?;
    Ok(())
}

/// Writes a symbolic link of a new sandbox, in a folder that nobody else writes to.
fn write_alias(path: &Path, target: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    std::os::unix::fs::symlink(target, path)
}
