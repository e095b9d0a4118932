//! All of the user's servers, for the rest of the product.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::discovery::{Discovery, Server, Snapshot, Surroundings};
use super::error::UpstreamError;
use super::events::{Event, ServerProgress};
use super::pool::{CallOutcome, Context, Limits, Pool, ServerState, ToolList, Use};
use super::questions::{Answers, NoAnswers};
use crate::settings::{Environment, Settings};

/// How alike a name has to be to be what was meant.
const ALIKE: f64 = 0.8;

/// The user's servers: found when asked for, started when used.
#[derive(Debug, Clone)]
pub struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    discovery: Discovery,
    pool: Pool,
}

/// One definition, and what becomes of it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The definition, with why it is not used if so.
    pub server: Arc<Server>,
    /// What the server is doing.
    pub state: ServerState,
    /// How many tools it said that it has, if it runs.
    pub tools: Option<usize>,
}

impl Upstream {
    /// Those of this process under the settings. Nothing is looked for before the first question.
    pub fn new(settings: &Settings, environment: Environment, answers: Arc<dyn Answers>) -> Self {
        let limits = Limits {
            call: settings.max_timeout.value,
            idle: settings.runtime_idle_timeout.value,
            ..Limits::default()
        };
        let guardian = std::env::current_exe().ok();
        Self::with(Surroundings::of_process(settings, environment), limits, answers, guardian)
    }

    /// Those of any surroundings; `guardian` is the program that ends servers which outlive a bridge that was killed.
    pub fn with(
        surroundings: Surroundings,
        limits: Limits,
        answers: Arc<dyn Answers>,
        guardian: Option<PathBuf>,
    ) -> Self {
        let context = Context::new(
            limits,
            surroundings.environment.clone(),
            surroundings.cwd.clone(),
            answers,
            guardian,
        );
        Self(Arc::new(Inner { discovery: Discovery::new(surroundings), pool: Pool::new(context) }))
    }

    /// Without anybody who answers the questions of servers.
    pub fn without_answers(settings: &Settings, environment: Environment) -> Self {
        Self::new(settings, environment, Arc::new(NoAnswers))
    }

    /// All definitions as the files are now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.discovery.snapshot()
    }

    /// Every definition, first those that are used.
    pub fn list(&self) -> Vec<Listed> {
        let snapshot = self.snapshot();
        let listed = |server: &Arc<Server>| {
            let (state, tools) = match &server.definition {
                Ok(_) => self.0.pool.state(&server.name),
                Err(_) => (ServerState::Stopped, None),
            };
            Listed { server: Arc::clone(server), state, tools }
        };
        snapshot.servers.iter().chain(&snapshot.skipped).map(listed).collect()
    }

    /// The server of a name or an alias.
    ///
    /// # Errors
    /// There is none, or its definition is not used.
    pub fn server(&self, name: &str) -> Result<Arc<Server>, UpstreamError> {
        let snapshot = self.snapshot();
        if let Some(server) = snapshot.get(name) {
            return Ok(Arc::clone(server));
        }
        if let Some(server) = snapshot.skipped(name)
            && let Err(why) = &server.definition
        {
            return Err(UpstreamError::Skipped { server: Arc::clone(&server.name), why: why.clone() });
        }
        let likeness =
            |server: &&Arc<Server>| strsim::jaro_winkler(&name.to_lowercase(), &server.name.to_lowercase());
        let nearest =
            snapshot.servers.iter().max_by(|left, right| likeness(left).total_cmp(&likeness(right)));
        let nearest =
            nearest.filter(|server| likeness(server) > ALIKE).map(|server| Arc::clone(&server.name));
        Err(UpstreamError::Unknown { name: name.to_owned(), nearest })
    }

    /// The tools of a server, which is started if need be.
    ///
    /// # Errors
    /// The server cannot be used, or does not answer.
    pub async fn tools(
        &self,
        server: &str,
        cancel: &CancellationToken,
    ) -> Result<Arc<ToolList>, UpstreamError> {
        let server = self.server(server)?;
        self.0.pool.tools(use_of(&server, cancel)?).await
    }

    /// Calls a tool by its name.
    ///
    /// # Errors
    /// The server cannot be used, or gives no result. A tool that fails gives a result that says so.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        progress: Option<mpsc::Sender<ServerProgress>>,
        cancel: &CancellationToken,
    ) -> Result<CallOutcome, UpstreamError> {
        let server = self.server(server)?;
        self.0.pool.call(use_of(&server, cancel)?, tool, arguments, progress).await
    }

    /// What servers say from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.pool.context().events.subscribe()
    }

    /// Stops a server, which is started again when it is needed. Its calls under way fail.
    pub async fn stop(&self, server: &str) {
        if let Ok(server) = self.server(server) {
            self.0.pool.stop(&server.name).await;
        }
    }

    /// Ends every server. Calls under way fail; nothing is started after this.
    pub async fn shutdown(&self) {
        self.0.pool.shutdown().await;
    }
}

fn use_of<'a>(server: &'a Arc<Server>, cancel: &'a CancellationToken) -> Result<Use<'a>, UpstreamError> {
    match &server.definition {
        Ok(definition) => Ok(Use { server, definition, cancel }),
        Err(why) => Err(UpstreamError::Skipped { server: Arc::clone(&server.name), why: why.clone() }),
    }
}
