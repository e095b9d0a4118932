//! All servers of a user, for the rest of the product: their definitions, and calls of their tools.

mod additions;
mod approval;
mod documentation;
mod logging_in;
mod offers;
mod pages;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, Mask};
use crate::nearest::nearest;
use crate::policy::{Effect, Kind, Policy};
use crate::reaper::Reaper;
use crate::settings::{Environment, Settings};
use crate::telemetry::{CallSpan, Failed, Telemetry, Transport};
use crate::upstream::arguments::check_arguments;
use crate::upstream::called_by::CalledBy;
use crate::upstream::catalog::{SAVED, ToolItem};
use crate::upstream::discovery::{Discovery, Launch, Proposal, Server, Snapshot, Surroundings, User};
use crate::upstream::docs::{Docs, DocsCache};
use crate::upstream::error::UpstreamError;
use crate::upstream::events::Event;
use crate::upstream::govern::{Wanted, WantedCall, admit, allow, denial, rules_for};
use crate::upstream::login::Logins;
use crate::upstream::options::CallOptions;
use crate::upstream::pool::{
    Age, CallOutcome, Context, Limits, Listener, Pool, PoolRequest, Purpose, ServerState, Tool, ToolList,
};
use crate::upstream::questions::{Answers, Askers, CallerGuard};
use crate::upstream::raw_arguments::RawArguments;
use crate::upstream::recorded::Recorded;
use crate::upstream::recording::{Recording, mask_of_all, record_denial, record_refusal};
use crate::upstream::registry::Registry;
use crate::upstream::tool_doc::DocKind;
use crate::upstream::unattended::denial_of_call;

/// Bytes of a result from which its shape is learned: it is copied for that.
const LARGEST_LESSON: usize = 1 << 20;

/// The servers of a user. Definitions are read when needed, servers started when used.
#[derive(Debug, Clone)]
pub struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    discovery: Discovery,
    registry: Registry,
    /// How many servers that code wanted to add were not approved. Held while the person is asked: one form at a time.
    unapproved: tokio::sync::Mutex<u32>,
    user: User,
    policy: Arc<Policy>,
    telemetry: Telemetry,
    audit: Audit,
    pool: Arc<Pool>,
    docs: Docs,
    /// The calls that are answered from the audit log, in place of the pool.
    recorded: Option<Recorded>,
    /// The definitions about which the person was asked, and how often without an answer. Held meanwhile: one form at a time.
    asked: tokio::sync::Mutex<HashMap<Arc<Proposal>, u32>>,
    /// The pages of logins that the person was shown. Held while one is shown.
    pages: tokio::sync::Mutex<pages::Pages>,
    /// The servers that the person logs in to, as it happens.
    logged_in: broadcast::Sender<Arc<str>>,
    /// The start of the URLs of the console, where one of many users logs in.
    console: watch::Sender<Option<String>>,
    /// Comparisons of a wrong name with all others take turns.
    comparing: Semaphore,
}

/// What is said of a call to others.
struct Watched {
    span: CallSpan,
    recording: Recording,
}

impl Upstream {
    /// Those of this process under the settings. Nothing is looked for before the first question.
    pub fn new(
        settings: &Settings,
        environment: Arc<Environment>,
        reaper: Reaper,
        policy: Arc<Policy>,
        user: User,
        telemetry: Telemetry,
        audit: Audit,
    ) -> Self {
        let limits = Limits {
            call: settings.max_timeout.value,
            idle: settings.runtime_idle_timeout.value,
            ..Limits::default()
        };
        let surroundings = Surroundings::of_process(settings, environment, user);
        Self::with(surroundings, limits, reaper, policy, telemetry, audit)
    }

    /// Those of any surroundings.
    pub fn with(
        surroundings: Surroundings,
        limits: Limits,
        reaper: Reaper,
        policy: Arc<Policy>,
        telemetry: Telemetry,
        audit: Audit,
    ) -> Self {
        let cache = Arc::new(DocsCache::new(&surroundings));
        let listener = Arc::clone(&cache) as Arc<dyn Listener>;
        let pool =
            Arc::new(Pool::new(Context::new(limits, &surroundings, listener, reaper, telemetry.clone())));
        let docs = Docs::new(Arc::clone(&pool), cache);
        Self(Arc::new(Inner {
            user: surroundings.user.clone(),
            registry: Registry::new(surroundings.registry.as_ref(), &surroundings.state_dir),
            discovery: Discovery::new(surroundings),
            policy,
            telemetry,
            audit,
            pool,
            docs,
            recorded: None,
            asked: Default::default(),
            unapproved: Default::default(),
            pages: Default::default(),
            logged_in: broadcast::Sender::new(pages::MOST_LOGINS),
            console: Default::default(),
            comparing: Semaphore::new(1),
        }))
    }

    /// Returns servers whose calls are answered with what was recorded: nothing is started. They are defined in a folder without
    /// anything else.
    pub fn replaying(settings: &Settings, folder: &Path, recorded: Recorded, reaper: Reaper) -> Self {
        let surroundings = Surroundings {
            cwd: folder.into(),
            state_dir: folder.into(),
            own_binary: std::env::current_exe().ok(),
            ..Surroundings::default()
        };
        let limits = Limits { call: settings.max_timeout.value, ..Limits::default() };
        let mut upstream = Self::with(
            surroundings,
            limits,
            reaper,
            Arc::new(Policy::none()),
            Telemetry::default(),
            Audit::off(),
        );
        if let Some(inner) = Arc::get_mut(&mut upstream.0) {
            inner.recorded = Some(recorded);
        }
        upstream
    }

    /// Returns the name by which rules know the user.
    pub fn principal(&self) -> Arc<str> {
        Arc::clone(&self.0.user.principal)
    }

    /// Begins a run. The servers that it may call may ask its client already while they are started.
    pub fn begin_run(&self, answers: &Arc<dyn Answers>, askers: Askers) -> CallerGuard {
        self.0.pool.context().runs.enter(answers, askers)
    }

    /// Returns who is logged in to remote servers.
    pub fn logins(&self) -> &Logins {
        &self.0.pool.context().logins
    }

    /// Returns all definitions.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.discovery.snapshot()
    }

    /// As [`Self::snapshot`], for callers that need servers.
    ///
    /// # Errors
    /// The chosen profile does not exist.
    pub fn usable(&self) -> Result<Arc<Snapshot>, UpstreamError> {
        let snapshot = self.snapshot();
        match &snapshot.unknown_profile {
            Some(unknown) => Err(unknown.clone().into()),
            None => Ok(snapshot),
        }
    }

    /// Returns the registry in which servers are searched.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Returns the definitions, for those that change them.
    pub fn definitions(&self) -> &Discovery {
        &self.0.discovery
    }

    /// Returns the standard error of a server that is starting, without credentials; None for other servers.
    pub fn startup_output(&self, name: &str) -> Option<String> {
        self.0.pool.startup_output(name)
    }

    /// Returns what a server is doing.
    pub fn state_of(&self, name: &str) -> ServerState {
        self.0.pool.state(name)
    }

    /// Returns the server of a name or an alias.
    ///
    /// # Errors
    /// There is none, or its definition is not used.
    pub fn server(&self, name: &str) -> Result<Arc<Server>, UpstreamError> {
        let snapshot = self.usable()?;
        if let Some(server) = snapshot.get(name) {
            return Ok(Arc::clone(server));
        }
        if let Some(server) = snapshot.skipped(name)
            && let Err(why) = &server.definition
        {
            return Err(UpstreamError::Skipped { server: Arc::clone(&server.name), why: why.clone() });
        }
        let all = snapshot.servers.iter().chain(&snapshot.skipped);
        let nearest = nearest(name, all.map(|server| &*server.name));
        Err(UpstreamError::Unknown { name: name.to_owned(), nearest: nearest.map(Into::into) })
    }

    /// Calls a tool by its name or alias, after checking the names of the arguments.
    ///
    /// # Errors
    /// The server cannot be used, has no such tool, or gives no result. A tool that fails gives a result that says so.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: RawArguments,
        options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        self.call_of(&self.server(server)?, tool, arguments, options).await
    }

    /// As [`Self::call`], of a server that is known already: nothing is looked up.
    ///
    /// # Errors
    /// The definition of the server is skipped, the server cannot be used, has no such tool, or gives no result.
    pub async fn call_of(
        &self,
        server: &Arc<Server>,
        tool: &str,
        arguments: RawArguments,
        mut options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        let span = self.0.telemetry.begin_call(&server.name, transport_of(server), &options.by.trace);
        if let Some(context) = span.context() {
            options.by.trace = context;
        }
        let recording = Recording::begin(&self.0.audit, server, tool, &arguments, &options.by);
        let mut watched = Watched { span, recording };
        let unattended = options.by.unattended.clone();
        let outcome = self.admit_and_call(server, tool, arguments, options, &mut watched).await;
        if let Some(unattended) = unattended {
            unattended.look_at(&outcome);
        }
        watched.recording.end(server, &outcome).await;
        watched.span.end(failure_of(&outcome));
        outcome
    }

    async fn admit_and_call(
        &self,
        server: &Arc<Server>,
        tool: &str,
        arguments: RawArguments,
        options: CallOptions<'_>,
        Watched { span, recording }: &mut Watched,
    ) -> Result<CallOutcome, UpstreamError> {
        let cancel = options.cancel;
        if let Some(recorded) = &self.0.recorded {
            return recorded.call(server, (None, tool), &arguments);
        }
        let policy = &self.0.policy;
        let rules = rules_for(policy, server, tool, &options.by)?;
        // A server may ask as soon as it is started.
        let _caller = self.begin_run(&options.answers, Some(vec![Arc::clone(&server.name)]));
        let tools = self.tools_with(server, tool, cancel).await?;
        let listed = tools.get(tool);
        let name = match listed {
            Some(tool) => {
                check(&tools, tool, &arguments).await.map_err(|why| UpstreamError::Arguments {
                    server: Arc::clone(&server.name),
                    tool: tool.name.clone(),
                    why,
                })?;
                tool.name.as_str()
            }
            // A server that lists no tools may still have the tool.
            None if tools.tools.is_empty() => tool,
            None => return Err(self.unknown_tool(server, tool, tools).await),
        };
        span.set_tool(name);
        recording.is_of(name, listed);
        let request = PoolRequest::new(server, Purpose::Call, cancel)?;
        let Some(rules) = rules else {
            if options.by.unattended.is_some() && !listed.is_some_and(|tool| tool.annotations().read_only) {
                return Err(denial_of_call(&server.name, name));
            }
            recording.admitted(server, name, None).await?;
            let outcome = self.0.pool.call(request, name, arguments, options).await;
            self.learn(server, listed, &outcome);
            return outcome;
        };
        let wanted = WantedCall {
            server,
            tool: name,
            listed,
            tools: &tools,
            arguments: &arguments,
            by: &options.by,
            answers: &*options.answers,
            cancel,
            telemetry: &self.0.telemetry,
        };
        recording.is_deciding();
        let admitted = admit(policy, &rules, wanted).await?;
        recording.admitted(server, name, Some(&admitted)).await?;
        let (begun, sent) = (Instant::now(), arguments.as_bytes().len());
        let outcome = self.0.pool.call(request, name, arguments, options).await;
        let received = outcome.as_ref().map_or(0, |outcome| outcome.json.get().len());
        admitted.end(sent + received, begun.elapsed());
        self.learn(server, listed, &outcome);
        outcome
    }

    /// Learns what a tool returns, where its server does not say.
    fn learn(
        &self,
        server: &Arc<Server>,
        listed: Option<&Tool>,
        outcome: &Result<CallOutcome, UpstreamError>,
    ) {
        if let (Some(tool), Ok(outcome)) = (listed, outcome)
            && tool.output_schema.is_none()
            && !outcome.is_error
            && outcome.json.get().len() <= LARGEST_LESSON
        {
            self.0.docs.learn(server, &tool.name, &outcome.json);
        }
    }

    /// Returns what removes the credentials of all definitions. It takes its time.
    pub fn mask_of_all(&self) -> Mask {
        mask_of_all(self.snapshot())
    }

    /// Records a call of a server that the code may not use; `kind` says what it is about, if not about a tool.
    pub async fn record_refusal(
        &self,
        server: &str,
        (kind, tool): (Option<Kind>, &str),
        by: &CalledBy,
        verdict: &'static str,
        why: &str,
    ) {
        record_refusal(&self.0.audit, server, (kind, tool), by, verdict, why).await;
    }

    /// Returns why the policy by now denies something that is no tool and was allowed before; nobody is asked again.
    pub fn denial(&self, kind: Kind, name: &str, by: &CalledBy) -> Option<UpstreamError> {
        denial(&self.0.policy, kind, name, by)
    }

    /// Decides whether code may have a package or an artifact. The person may be asked.
    ///
    /// # Errors
    /// It is denied.
    pub async fn allow(
        &self,
        kind: Kind,
        name: &str,
        by: &CalledBy,
        answers: &dyn Answers,
        cancel: &CancellationToken,
    ) -> Result<(), UpstreamError> {
        let telemetry = &self.0.telemetry;
        let allowed = allow(&self.0.policy, Wanted { kind, name, by, answers, cancel, telemetry }).await;
        if let Err(error) = &allowed {
            record_denial(&self.0.audit, kind, name, by, error).await;
            if let Some(unattended) = &by.unattended {
                unattended.hinder();
            }
        }
        allowed
    }

    /// Marks the tools that the policy always denies.
    pub fn mark_denied(&self, tools: &mut [ToolItem], by: &CalledBy) {
        let rules = self.0.policy.rules();
        // A function is no tool: the tools that it calls have rules.
        for item in tools.iter_mut().filter(|item| item.kind != Some(SAVED)) {
            item.denied = match &rules {
                Ok(None) => false,
                Ok(Some(rules)) => {
                    let (server, name, who) = (&item.server, &item.tool, by.caller());
                    let of_offer = |kind| rules.of_offer(kind, server, name, &who).effect() == Effect::Deny;
                    match item.doc_kind {
                        DocKind::Tool => rules.denies_tool(server, name, &who).is_some(),
                        DocKind::Resource | DocKind::Template => of_offer(Kind::Resource),
                        DocKind::Prompt => of_offer(Kind::Prompt),
                    }
                }
                Err(_) => true,
            };
        }
    }

    /// Returns the tools of a server, listed again if the tool is not among them.
    async fn tools_with(
        &self,
        server: &Arc<Server>,
        tool: &str,
        cancel: &CancellationToken,
    ) -> Result<Arc<ToolList>, UpstreamError> {
        let listing = self.0.pool.tools(PoolRequest::new(server, Purpose::Call, cancel)?, Age::Current).await;
        let tools = match listing {
            Ok(listing) => Arc::clone(&listing.tools),
            // A server that cannot list its tools may still have some.
            Err(UpstreamError::Refused { .. } | UpstreamError::Malformed { .. }) => Arc::default(),
            Err(error) => {
                self.0.docs.note(server, &error).await;
                return Err(error);
            }
        };
        if tools.tools.is_empty() || tools.get(tool).is_some() {
            return Ok(tools);
        }
        let listing =
            self.0.pool.tools(PoolRequest::new(server, Purpose::Call, cancel)?, Age::With(tool)).await?;
        Ok(Arc::clone(&listing.tools))
    }

    /// Returns the error for a tool that a server does not have. A server may have any number of others to compare with.
    async fn unknown_tool(&self, server: &Server, tool: &str, tools: Arc<ToolList>) -> UpstreamError {
        let _turn = self.0.comparing.acquire().await;
        let wanted = tool.to_owned();
        let meant = spawn_blocking(move || {
            nearest(&wanted, tools.tools.iter().map(|tool| tool.name.as_str())).map(Arc::from)
        });
        let (server, tool) = (Arc::clone(&server.name), tool.to_owned());
        UpstreamError::UnknownTool { server, tool, nearest: meant.await.ok().flatten() }
    }

    #[cfg(test)]
    pub(in crate::upstream) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Returns the receiver of what servers say from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.pool.context().events.subscribe()
    }

    /// Stops every server. Calls under way fail, and nothing is started after this.
    pub async fn shutdown(&self) {
        self.0.pool.shutdown().await;
        self.0.docs.finish().await;
    }
}

/// Returns what messages to a server travel over; None if its definition is not used.
fn transport_of(server: &Server) -> Option<Transport> {
    Some(match server.definition.as_ref().ok()?.launch {
        Launch::Stdio { .. } => Transport::Pipe,
        Launch::Http { .. } | Launch::OpenApi(_) => Transport::Tcp,
    })
}

/// Returns what is recorded of a call that has no good result.
fn failure_of(outcome: &Result<CallOutcome, UpstreamError>) -> Option<Failed> {
    match outcome {
        Ok(outcome) => outcome.is_error.then_some(Failed::Tool),
        Err(UpstreamError::Refused { code, .. }) => Some(Failed::Protocol(*code)),
        Err(error) => Some(Failed::Other(error.kind())),
    }
}

/// Checks the names of arguments, on a thread that may take its time if they are long.
async fn check(tools: &Arc<ToolList>, tool: &Tool, arguments: &RawArguments) -> Result<(), String> {
    if !arguments.are_large() {
        return check_arguments(tool, arguments);
    }
    let (tools, name, arguments) = (Arc::clone(tools), tool.name.clone(), arguments.clone());
    let check = move || tools.get(&name).map_or(Ok(()), |tool| check_arguments(tool, &arguments));
    spawn_blocking(check).await.unwrap_or_else(|error| Err(error.to_string()))
}
