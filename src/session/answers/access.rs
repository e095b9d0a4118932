//! The access that the code of a session has to the user's MCP servers: calls go only to those that the current run may use,
//! whatever the sandbox claims.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::grant::{Grant, not_available};
use super::packages::SessionPackages;
use super::paused_time::PausedTime;
use super::transfers::Transfers;
use crate::session::call::Script;
use crate::session::capacity::Capacity;
use crate::session::questions::{Answer, Call, InstallQuestion, QuestionError};
use crate::session::{Caller, Progress};
use crate::upstream::discovery::Server;
use crate::upstream::{Answers, CallOptions, CallerGuard, NoAnswers, UnreadResults, Upstream, UpstreamError};

/// How long a search waits for servers whose tools are not known yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines shown of the standard error of a server that is slow to start.
const START_LINES: usize = 3;
/// Searches of one session at once. They use the processor, and there are few threads for that.
const SEARCHES: usize = 4;
/// Things that code waits for, of those that are named.
const MOST_NAMED: usize = 8;
/// Progress messages of a call that wait to be forwarded.
const WAITING_PROGRESS: usize = 16;

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
    unread: UnreadResults,
    current: Mutex<Current>,
    /// Set before the sandbox starts.
    packages: OnceLock<SessionPackages>,
    /// How long the run has waited for packages.
    waits: PausedTime,
}

/// What holds for the current run. Grant and answers go on to hold for tasks that it leaves in the background.
#[derive(Debug)]
struct Current {
    grant: Grant,
    progress: Option<mpsc::Sender<Progress>>,
    answers: Arc<dyn Answers>,
    script: Option<Arc<Script>>,
    /// Lets servers that the run may call ask its client while they are started.
    run: Option<CallerGuard>,
    /// Servers by the names under which they were called: to look one up takes longer than a call.
    called: HashMap<String, Arc<Server>>,
    under_way: Vec<Awaited>,
    patience: Duration,
}

/// A server that code may call, and where progress and questions of the call go.
type Granted = (Arc<Server>, Option<mpsc::Sender<Progress>>, Arc<dyn Answers>);

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
            answers: Arc::new(NoAnswers::default()),
            script: None,
            run: None,
            called: HashMap::new(),
            under_way: Vec::new(),
            patience: Duration::ZERO,
        };
        Self {
            upstream,
            capacity,
            transfers,
            one_shot,
            searches: Semaphore::new(SEARCHES),
            unread: UnreadResults::default(),
            current: Mutex::new(current),
            packages: OnceLock::new(),
            waits: PausedTime::default(),
        }
    }

    pub(in crate::session) fn transfers(&self) -> &Arc<Transfers> {
        &self.transfers
    }

    /// Begins a run: from here on code may call what `grant` allows, and `caller` gets the progress of its calls until the run
    /// is dropped.
    pub(in crate::session) fn begin(&self, grant: Grant, timeout: Duration, caller: &Caller) -> Run<'_> {
        self.waits.reset();
        let mut current = self.lock();
        let under_way = std::mem::take(&mut current.under_way);
        // A run with little time gets what is known.
        let patience = PATIENCE.min(timeout / 2);
        let run = Some(self.upstream.begin_run(&caller.answers, grant.askers()));
        *current = Current {
            grant,
            progress: Some(caller.progress.clone()),
            answers: Arc::clone(&caller.answers),
            script: caller.script.clone(),
            run,
            called: HashMap::new(),
            under_way,
            patience,
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
        self.packages()?.install(question, progress, cancel).await
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

    /// Calls a tool, if the current run may.
    pub(in crate::session) async fn call(
        &self,
        call: Call,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let Call { server, tool, arguments } = call;
        let (server, progress, answers) = self.granted(&server, cancel).await?;
        let progress = progress.map(|progress| forward_server_progress(&server, &tool, progress));
        let options = CallOptions { progress, answers, unread: Some(self.unread.clone()), cancel };
        let _under_way = UnderWay::new(self, &server, Some(&tool));
        let outcome = self.upstream.call_of(&server, &tool, arguments, options).await?;
        Answer::result(outcome)
    }

    /// Returns the server of a name that the current run may call, and where progress and questions of the call go. In a run that
    /// may call any server, the person may have to approve its definition first.
    async fn granted(&self, name: &str, cancel: &CancellationToken) -> Result<Granted, QuestionError> {
        let granted = |current: &Current, server: &Arc<Server>| {
            (Arc::clone(server), current.progress.clone(), Arc::clone(&current.answers))
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

/// Forwards the progress that a server reports of a call, as long as the call runs.
fn forward_server_progress<R: Display + Send + 'static>(
    server: &Server,
    tool: &str,
    progress: mpsc::Sender<Progress>,
) -> mpsc::Sender<R> {
    let (sender, mut reports) = mpsc::channel::<R>(WAITING_PROGRESS);
    let name = format!("{}.{tool}", server.name);
    tokio::spawn(async move {
        while let Some(report) = reports.recv().await {
            // What does not fit in the queue is out of date by the time it would.
            let _ = progress.try_send(Progress::Calling(format!("{name}: {report}")));
        }
    });
    sender
}

impl From<UpstreamError> for QuestionError {
    fn from(error: UpstreamError) -> Self {
        let kind = match &error {
            UpstreamError::Unknown { .. }
            | UpstreamError::Skipped { .. }
            | UpstreamError::Distrusted { .. } => Some("server"),
            UpstreamError::UnknownTool { .. } => Some("tool"),
            UpstreamError::Arguments { .. } => Some("arguments"),
            _ => None,
        };
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Self { kind, message }
    }
}
