//! The access that the code of a session has to the user's MCP servers: calls go only to those that the current run may use,
//! whatever the sandbox claims.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::grant::{Grant, not_available};
use super::packages::{Allowing, SessionPackages};
use super::paused_time::{PausedTime, PausingAnswers};
use super::transfers::Transfers;
use super::watches::Watches;
use crate::activity::{CallReporter, RunReporter};
use crate::audit::RunFacts;
use crate::policy::{Approvals, Kind};
use crate::session::call::Script;
use crate::session::capacity::Capacity;
use crate::session::questions::{Answer, InstallQuestion, QuestionError, ReportedProgress};
use crate::session::{Caller, Progress, RunRequest};
use crate::upstream::discovery::Server;
use crate::upstream::{Answers, CalledBy, CallerGuard, NoAnswers, UnreadResults, Upstream, UpstreamError};
use crate::workflows::Journal;

/// How long a search waits for servers whose tools are not known yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines shown of the standard error of a server that is slow to start.
const START_LINES: usize = 3;
/// Searches of one session at once. They use the processor, and there are few threads for that.
const SEARCHES: usize = 4;
/// Things that code waits for, of those that are named.
const MOST_NAMED: usize = 8;
/// Artifacts of a run that are remembered.
const MOST_ARTIFACTS: usize = 1_000;

/// The access of one interpreter.
#[derive(Debug)]
pub(in crate::session) struct ServerAccess {
    pub(super) upstream: Upstream,
    pub(super) capacity: Arc<Capacity>,
    /// The artifacts that its code saves.
    transfers: Arc<Transfers>,
    /// Whether a person at a terminal reads the messages.
    one_shot: bool,
    pub(super) searches: Semaphore,
    /// Results of calls that the guest has not read.
    pub(super) unread: UnreadResults,
    pub(super) watches: Watches,
    current: Mutex<Current>,
    /// Set before the sandbox starts.
    packages: OnceLock<SessionPackages>,
    /// How long the run has waited for packages and for the person.
    waits: Arc<PausedTime>,
    /// What the person has approved.
    approvals: Arc<Approvals>,
    /// The paths of shared folders that the policy denies to it.
    denied_shares: Vec<String>,
}

/// What holds for the current run. Grant and answers go on to hold for tasks that it leaves in the background.
#[derive(Debug)]
struct Current {
    grant: Grant,
    progress: Option<mpsc::Sender<Progress>>,
    /// None before the first run.
    reporter: Option<RunReporter>,
    answers: Arc<dyn Answers>,
    script: Option<Arc<Script>>,
    by: CalledBy,
    /// The code of the run, for the line that makes a call.
    code: Arc<str>,
    /// Lets servers that the run may call ask its client while they are started.
    run: Option<CallerGuard>,
    /// Servers by the names under which they were called: to look one up takes longer than a call.
    called: HashMap<String, Arc<Server>>,
    /// The artifacts that it may have.
    artifacts: HashSet<String>,
    under_way: Vec<Awaited>,
    patience: Duration,
    /// How long the run may take.
    timeout: Duration,
}

/// A run that begins.
pub(in crate::session) struct NewRun<'a> {
    pub(in crate::session) id: u32,
    /// None for a session that ends with the run.
    pub(in crate::session) session: Option<&'a str>,
    pub(in crate::session) code: &'a str,
    pub(in crate::session) facts: Arc<RunFacts>,
    pub(in crate::session) grant: Grant,
    pub(in crate::session) timeout: Duration,
    pub(in crate::session) reporter: RunReporter,
}

/// A server that code may call, and what the call needs of the current run.
pub(super) struct Granted {
    pub(super) server: Arc<Server>,
    pub(super) progress: Option<mpsc::Sender<Progress>>,
    pub(super) answers: Arc<dyn Answers>,
    pub(super) by: CalledBy,
    pub(super) code: Arc<str>,
    pub(super) timeout: Duration,
}

impl ServerAccess {
    pub(in crate::session) fn new(
        upstream: Upstream,
        capacity: Arc<Capacity>,
        transfers: Arc<Transfers>,
        one_shot: bool,
    ) -> Self {
        let current = Current {
            grant: Grant::Nothing,
            progress: None,
            reporter: None,
            answers: Arc::new(NoAnswers::default()),
            script: None,
            by: CalledBy::default(),
            code: "".into(),
            run: None,
            called: HashMap::new(),
            artifacts: HashSet::new(),
            under_way: Vec::new(),
            patience: Duration::ZERO,
            timeout: Duration::ZERO,
        };
        Self {
            upstream,
            capacity,
            transfers,
            one_shot,
            searches: Semaphore::new(SEARCHES),
            unread: UnreadResults::default(),
            watches: Watches::default(),
            current: Mutex::new(current),
            packages: OnceLock::new(),
            waits: Arc::default(),
            approvals: Arc::default(),
            denied_shares: Vec::new(),
        }
    }

    /// Takes shared folders away, named by their paths in the sandbox.
    pub(in crate::session) fn without_shares(self, denied_shares: Vec<String>) -> Self {
        Self { denied_shares, ..self }
    }

    /// Whether the sandbox has a shared folder.
    pub(in crate::session) fn has_share(&self, target: &str) -> bool {
        !self.denied_shares.iter().any(|denied| denied == target)
    }

    pub(in crate::session) fn transfers(&self) -> &Arc<Transfers> {
        &self.transfers
    }

    /// Begins a run: from here on code may call what its grant allows, and `caller` gets the progress of its calls until the run
    /// is dropped.
    pub(in crate::session) fn begin(&self, run: NewRun<'_>, caller: &Caller) -> Run<'_> {
        let NewRun { id, session, code, facts, grant, timeout, reporter } = run;
        self.waits.reset();
        let mut current = self.lock();
        let under_way = std::mem::take(&mut current.under_way);
        // A run with little time gets what is known.
        let patience = PATIENCE.min(timeout / 2);
        let waits = Arc::clone(&self.waits);
        let answers: Arc<dyn Answers> = Arc::new(PausingAnswers::new(Arc::clone(&caller.answers), waits));
        let run = Some(self.upstream.begin_run(&answers, grant.askers()));
        let by = CalledBy {
            session: Some(session.unwrap_or(RunRequest::THROW_AWAY).into()),
            run: id,
            principal: self.upstream.principal(),
            approvals: Arc::clone(&self.approvals),
            trace: caller.trace.clone(),
            facts,
            unattended: caller.unattended.clone(),
            ..CalledBy::default()
        };
        *current = Current {
            grant,
            progress: Some(caller.progress.clone()),
            reporter: Some(reporter),
            answers,
            script: caller.script.clone(),
            by,
            code: code.into(),
            run,
            called: HashMap::new(),
            artifacts: HashSet::new(),
            under_way,
            patience,
            timeout,
        };
        Run(self)
    }

    /// Returns what code waits for: calls as `server.tool`, servers that are still starting with the last lines of their
    /// standard error.
    pub(in crate::session) fn under_way(&self) -> Vec<String> {
        let mut under_way = self.lock().under_way.clone();
        under_way.dedup();
        let more = under_way.len().saturating_sub(MOST_NAMED);
        under_way.truncate(MOST_NAMED);
        let describe = |(server, tool): Awaited| match (self.upstream.startup_output(&server), tool) {
            (Some(words), _) => {
                let lines: Vec<&str> = words.lines().rev().take(START_LINES).collect();
                let stderr: String = lines.into_iter().rev().collect::<Vec<_>>().join(" | ");
                let stderr = if stderr.is_empty() { stderr } else { format!(" (its output: {stderr})") };
                format!("the server '{server}', which is still starting{stderr},")
            }
            (None, Some(tool)) => format!("{server}.{tool}"),
            (None, None) => format!("the server '{server}'"),
        };
        let mut described: Vec<String> = under_way.into_iter().map(describe).collect();
        described.dedup();
        if more > 0 {
            described.push(format!("{more} more"));
        }
        described
    }

    /// Gives the session its packages.
    pub(in crate::session) fn set_packages(&self, packages: SessionPackages) {
        // Another start of the same session has the same.
        let _ = self.packages.set(packages);
    }

    pub(in crate::session) fn packages(&self) -> Result<&SessionPackages, QuestionError> {
        self.packages.get().ok_or_else(|| QuestionError::plain("this session has no packages"))
    }

    /// Installs packages. The time that it takes is not that of the run.
    pub(in crate::session) async fn install(
        &self,
        question: InstallQuestion,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let progress = self.lock().progress.clone();
        let _wait = self.waits.pause();
        let allow = |name: String| -> Allowing<'_> {
            Box::pin(async move { self.allow(Kind::Package, &name, cancel).await })
        };
        self.packages()?.install(question, progress, &allow, cancel).await
    }

    /// Decides whether the current run may have an artifact. It is decided once for all parts of it.
    pub(super) async fn allow_artifact(
        &self,
        name: &str,
        cancel: &CancellationToken,
    ) -> Result<(), QuestionError> {
        let run = {
            let current = self.lock();
            if current.artifacts.contains(name) {
                return Ok(());
            }
            current.by.run
        };
        self.allow(Kind::Artifact, name, cancel).await?;
        let mut current = self.lock();
        // Another run may have begun while the person was asked: it is decided again for that one.
        if current.by.run == run && current.artifacts.len() < MOST_ARTIFACTS {
            current.artifacts.insert(name.to_owned());
        }
        Ok(())
    }

    /// Decides whether the current run may have something that is no tool.
    async fn allow(&self, kind: Kind, name: &str, cancel: &CancellationToken) -> Result<(), QuestionError> {
        let (by, answers) = self.asker();
        Ok(self.upstream.allow(kind, name, &by, &*answers, cancel).await?)
    }

    /// Returns who asks for something in the current run, and who answers questions.
    pub(super) fn asker(&self) -> (CalledBy, Arc<dyn Answers>) {
        let current = self.lock();
        (current.by.clone(), Arc::clone(&current.answers))
    }

    /// Lets the current run call a server that the person has just approved.
    pub(super) fn allow_server(&self, server: &Arc<Server>) {
        self.lock().grant.add(server);
    }

    /// Returns how long the run has waited for packages, which is no run time.
    pub(in crate::session) fn paused(&self) -> Duration {
        self.waits.total()
    }

    /// Returns what the command line gave to the current run.
    pub(in crate::session) fn script(&self) -> Result<Arc<Script>, QuestionError> {
        let script = self.lock().script.clone();
        script.ok_or_else(|| QuestionError::plain("only `codebridge exec` has a script and standard input"))
    }

    /// Returns the journal of the workflow that the current run is.
    pub(in crate::session) fn workflow(&self) -> Result<Arc<Journal>, QuestionError> {
        let script = self.lock().script.clone();
        let journal = script.and_then(|script| script.workflow.clone());
        journal.ok_or_else(|| QuestionError::plain("only `codebridge workflow run` has a journal of steps"))
    }

    /// Says that the current run calls a tool.
    pub(super) fn calls(&self, server: &str, tool: &str, line: Option<u32>) -> Option<CallReporter> {
        let reporter = self.lock().reporter.clone();
        reporter.map(|reporter| reporter.calls(server, tool, line))
    }

    /// Returns who makes the calls of the current run.
    pub(super) fn by(&self) -> CalledBy {
        self.lock().by.clone()
    }

    /// Refuses what lasts longer than a run that nobody has asked for.
    pub(super) fn must_be_attended(&self) -> Result<(), QuestionError> {
        let Some(unattended) = self.lock().by.unattended.clone() else { return Ok(()) };
        unattended.hinder();
        Err(QuestionError::plain("codebridge runs this test by itself: it cannot save or install anything"))
    }

    /// Returns how long a search of the current run waits for servers whose tools are not known yet.
    pub(super) fn patience(&self) -> Duration {
        self.lock().patience
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server of a name or an alias: definitions are read from files, and a wrong name is compared with all.
    pub(super) async fn look_up(&self, name: &str) -> Result<Arc<Server>, QuestionError> {
        Ok(self.try_look_up(name).await??)
    }

    async fn try_look_up(&self, name: &str) -> Result<Result<Arc<Server>, UpstreamError>, QuestionError> {
        let (upstream, name) = (self.upstream.clone(), name.to_owned());
        let found = self.capacity.work(move || upstream.server(&name)).await;
        found.ok_or_else(|| QuestionError::plain("the bridge failed to read the definitions of servers"))
    }

    /// Has the person log in to a server that the current run may call, if that is what an error says. Then it can be used again: it
    /// has not taken what was sent.
    pub(super) async fn log_in_for(
        &self,
        server: &Arc<Server>,
        error: UpstreamError,
        cancel: &CancellationToken,
    ) -> Result<(), QuestionError> {
        let (answers, may, by) = {
            let current = self.lock();
            (Arc::clone(&current.answers), current.grant.allows(server), current.by.clone())
        };
        if !may {
            return Err(error.into());
        }
        let _wait = self.waits.pause();
        tokio::select! {
            logged_in = self.upstream.ask_to_log_in(server, error, &*answers, &by) => Ok(logged_in?),
            () = cancel.cancelled() => Err(QuestionError::plain("the call was cancelled")),
        }
    }

    /// Passes on the progress that code reports of itself.
    pub(in crate::session) fn report(&self, progress: &ReportedProgress) {
        let (sender, reporter) = {
            let current = self.lock();
            (current.progress.clone(), current.reporter.clone())
        };
        let Some(sender) = sender else { return };
        let text = progress.text();
        if let Some(reporter) = reporter {
            reporter.does(&text);
        }
        // What does not fit in the queue is out of date by the time it would.
        let _ = sender.try_send(Progress::Reported(text));
    }

    /// Returns the server of a name that the current run may call. In a run that may call any server, the person may have to approve its definition first.
    pub(super) async fn granted(
        &self,
        name: &str,
        cancel: &CancellationToken,
    ) -> Result<Granted, QuestionError> {
        let granted = |current: &Current, server: &Arc<Server>| Granted {
            server: Arc::clone(server),
            progress: current.progress.clone(),
            answers: Arc::clone(&current.answers),
            by: current.by.clone(),
            code: Arc::clone(&current.code),
            timeout: current.timeout,
        };
        let known = {
            let current = self.lock();
            current.called.get(name).map(|server| granted(&current, server))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let server = match self.try_look_up(name).await? {
            Err(error) if matches!(self.lock().grant, Grant::Any(_)) => {
                let answers = Arc::clone(&self.lock().answers);
                tokio::select! {
                    approved = self.upstream.ask_for_approval(error, &*answers) => approved?,
                    () = cancel.cancelled() => return Err(QuestionError::plain("the call was cancelled")),
                }
                self.look_up(name).await?
            }
            found => found?,
        };
        let mut current = self.lock();
        if !current.grant.allows(&server) {
            return Err(QuestionError {
                kind: Some("server"),
                message: not_available(&server.name, self.one_shot),
            });
        }
        current.called.insert(name.to_owned(), Arc::clone(&server));
        Ok(granted(&current, &server))
    }
}

/// A run under way.
pub(in crate::session) struct Run<'a>(&'a ServerAccess);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut current = self.0.lock();
        current.progress = None;
        current.run = None;
    }
}

/// Something that code waits for, as long as it lives.
pub(super) struct UnderWay<'a> {
    access: &'a ServerAccess,
    awaited: Awaited,
}

/// A server and, for a call, the tool.
type Awaited = (Arc<str>, Option<String>);

impl<'a> UnderWay<'a> {
    pub(super) fn new(access: &'a ServerAccess, server: &Server, tool: Option<&str>) -> Self {
        let awaited = (Arc::clone(&server.name), tool.map(str::to_owned));
        access.lock().under_way.push(awaited.clone());
        Self { access, awaited }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut current = self.access.lock();
        if let Some(at) = current.under_way.iter().position(|other| *other == self.awaited) {
            current.under_way.swap_remove(at);
        }
    }
}

impl From<UpstreamError> for QuestionError {
    fn from(error: UpstreamError) -> Self {
        let kind = match &error {
            UpstreamError::Unknown { .. }
            | UpstreamError::Skipped { .. }
            | UpstreamError::Distrusted { .. } => Some("server"),
            UpstreamError::UnknownTool { .. } => Some("tool"),
            UpstreamError::Arguments { .. } => Some("arguments"),
            UpstreamError::Denied { .. }
            | UpstreamError::DeniedOffer { .. }
            | UpstreamError::NotAllowed { .. }
            | UpstreamError::Unrecorded { .. } => Some("denied"),
            UpstreamError::Replayed { kind, .. } => *kind,
            _ => None,
        };
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Self { kind, message }
    }
}

#[cfg(test)]
mod tests;
