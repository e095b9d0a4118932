//! The pool against a scripted server that does what real ones should not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Limits, PoolRequest, Purpose, ServerState, ToolList};
use crate::audit::Audit;
use crate::mcp::client::ServerProgress;
use crate::policy::Policy;
use crate::reaper::Reaper;
use crate::upstream::discovery::Surroundings;
use crate::upstream::options::CallOptions;
use crate::upstream::questions::{Answering, Answers, ClientId, NoAnswers, Offers, Question};
use crate::upstream::{CallOutcome, Event, RawArguments, Upstream, UpstreamError};

mod answers;
mod asking;
mod life;
mod over_http;
mod starting;
mod talk;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_server.py");

/// One user with one server, `fake`.
struct Bench {
    dir: tempfile::TempDir,
    upstream: Upstream,
    answers: Arc<dyn Answers>,
    cancel: CancellationToken,
}

/// How a bench differs from the usual one.
#[derive(Default)]
struct Setup {
    args: Vec<String>,
    entry: Map<String, Value>,
    limits: Limits,
    answers: Option<Arc<dyn Answers>>,
    reaper: Option<Reaper>,
    policy: Option<Policy>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Setup {
    fn args(args: &[&str]) -> Self {
        Self { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..Self::default() }
    }

    fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    fn entry(mut self, key: &str, value: Value) -> Self {
        self.entry.insert(key.into(), value);
        self
    }

    fn start(self) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench {
            upstream: Upstream::with(
                Surroundings {
                    cwd: dir.path().into(),
                    state_dir: dir.path().join("MCPs"),
                    // Not that of whoever runs this: its programs may be wrappers with variables of their own.
                    environment: Arc::new(
                        [("PATH", "/usr/local/bin:/usr/bin:/bin")]
                            .into_iter()
                            .chain(self.environment)
                            .map(|(name, value)| (name.to_owned(), value.into()))
                            .collect(),
                    ),
                    ..Surroundings::default()
                },
                self.limits,
                self.reaper.unwrap_or_else(|| Reaper::of(None)),
                Arc::new(self.policy.unwrap_or_else(Policy::none)),
                Default::default(),
                Audit::off(),
            ),
            answers: self.answers.unwrap_or_else(|| Arc::new(NoAnswers::default())),
            dir,
            cancel: CancellationToken::new(),
        };
        bench.define(self.args, self.entry);
        bench
    }
}

impl Bench {
    fn with(args: &[&str]) -> Self {
        Setup::args(args).start()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn define(&mut self, args: Vec<String>, entry: Map<String, Value>) {
        let args: Vec<String> = ["-u".into(), FAKE.into(), "--few".into()].into_iter().chain(args).collect();
        let mut fake = json!({ "command": "python3", "args": args });
        fake.as_object_mut().unwrap().extend(entry);
        std::fs::create_dir_all(self.path("MCPs")).unwrap();
        std::fs::write(self.path("MCPs/all.json"), json!({ "mcpServers": { "fake": fake } }).to_string())
            .unwrap();
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<CallOutcome, UpstreamError> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        self.call_by(tool, arguments, None, &self.cancel).await
    }

    /// Calls without asking first for the tools, most of which the scripted server does not list here.
    async fn call_by(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        progress: Option<mpsc::Sender<ServerProgress>>,
        cancel: &CancellationToken,
    ) -> Result<CallOutcome, UpstreamError> {
        let options =
            CallOptions { progress, answers: Arc::clone(&self.answers), ..CallOptions::new(cancel) };
        self.call_with(tool, arguments, options).await
    }

    async fn call_with(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        let server = self.upstream.server("fake")?;
        let arguments = RawArguments::new(Value::Object(arguments).to_string()).unwrap();
        let wanted = PoolRequest::new(&server, Purpose::Call, options.cancel)?;
        self.upstream.pool().call(wanted, tool, arguments, options).await
    }

    /// What a tool says in text, as JSON.
    async fn say(&self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments).await.unwrap();
        let text = outcome.value().unwrap()["content"][0]["text"].as_str().unwrap().to_owned();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    async fn structured(&self, tool: &str) -> Value {
        self.call(tool, json!({})).await.unwrap().value().unwrap()["structuredContent"].clone()
    }

    async fn pid(&self) -> u32 {
        self.structured("pids").await["pid"].as_u64().unwrap().try_into().unwrap()
    }

    async fn tools(&self) -> Result<Arc<ToolList>, UpstreamError> {
        self.upstream.tools("fake", &self.cancel).await
    }

    fn state(&self) -> ServerState {
        self.upstream.pool().state("fake")
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.path("starts")).unwrap_or_default().lines().count()
    }
}

fn is_alive(pid: u32) -> bool {
    codebridge_runtimes::process_start_time(pid).is_some()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Awaits them all at once, in order.
async fn futures_join<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_ready = true;
        for (future, outcome) in &mut pending {
            if outcome.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *outcome = Some(value),
                    std::task::Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
