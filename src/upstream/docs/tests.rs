//! Documentation of servers that are scripted: known, asked, changed, searched, and called by it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::audit::Audit;
use crate::policy::Policy;
use crate::reaper::Reaper;
use crate::upstream::catalog::{Detail, ServerDocs, ToolItem};
use crate::upstream::discovery::Surroundings;
use crate::upstream::pool::ServerState;
use crate::upstream::{CallOptions, CallOutcome, Limits, RawArguments, Upstream, UpstreamError};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_server.py");
const LONG: Duration = Duration::from_secs(30);

/// One user with a home.
struct Home {
    dir: tempfile::TempDir,
    servers: Map<String, Value>,
    cancel: CancellationToken,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("MCPs")).unwrap();
        Self { dir, servers: Map::new(), cancel: CancellationToken::new() }
    }

    fn with(servers: &[(&str, &[&str])]) -> Self {
        let mut home = Self::new();
        servers.iter().for_each(|(name, args)| home.define(name, args));
        home
    }

    /// Every server writes down its starts in a file of its name.
    fn define(&mut self, name: &str, args: &[&str]) {
        let args: Vec<&str> = ["-u", FAKE, "--starts", name].iter().chain(args).copied().collect();
        self.servers.insert(name.into(), json!({ "command": "python3", "args": args }));
        let all = json!({ "mcpServers": self.servers });
        std::fs::write(self.dir.path().join("MCPs/all.json"), all.to_string()).unwrap();
    }

    fn bridge(&self) -> Upstream {
        self.bridge_with(Limits::default())
    }

    fn bridge_with(&self, limits: Limits) -> Upstream {
        let surroundings = Surroundings {
            cwd: self.dir.path().into(),
            state_dir: self.dir.path().join("MCPs"),
            environment: Arc::new([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".into())].into()),
            ..Surroundings::default()
        };
        let (policy, audit) = (Arc::new(Policy::none()), Audit::off());
        Upstream::with(surroundings, limits, Reaper::of(None), policy, Default::default(), audit)
    }

    fn starts(&self, name: &str) -> usize {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default().lines().count()
    }

    fn catalog(&self) -> PathBuf {
        self.dir.path().join("MCPs").join(crate::upstream::catalog::FOLDER)
    }

    fn kept(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.catalog()).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "docs")).collect()
    }

    async fn docs(&self, bridge: &Upstream, server: &str) -> Arc<ServerDocs> {
        bridge.docs_of(server, &self.cancel).await.unwrap().1
    }

    async fn call(
        &self,
        bridge: &Upstream,
        tool: &str,
        arguments: Value,
    ) -> Result<CallOutcome, UpstreamError> {
        let arguments = arguments.as_object().cloned().unwrap();
        bridge.call("fake", tool, raw(&arguments), CallOptions::new(&self.cancel)).await
    }
}

fn state(bridge: &Upstream, server: &str) -> ServerState {
    bridge.pool().state(server)
}

fn names(docs: &ServerDocs) -> Vec<&str> {
    docs.tools().iter().map(|tool| &*tool.name).collect()
}

fn found(tools: &[ToolItem]) -> Vec<(&str, &str)> {
    tools.iter().map(|tool| (tool.server.as_str(), tool.tool.as_str())).collect()
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {LONG:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_is_asked_once_and_known_from_then_on() {
    let home = Home::with(&[("fake", &["--few", "--tools", "2"])]);
    let bridge = home.bridge();
    assert!(bridge.known_docs("fake").await.is_none());
    assert_eq!(names(&*home.docs(&bridge, "fake").await), ["echo", "tool-0", "tool-1"]);
    assert_eq!(home.docs(&bridge, "fake").await.about().title.as_deref(), Some("fake"));
    bridge.shutdown().await;
    let later = home.bridge();
    assert_eq!(names(&later.known_docs("fake").await.unwrap()), ["echo", "tool-0", "tool-1"]);
    let (server, docs) = later.docs_of("fake", &home.cancel).await.unwrap();
    assert_eq!((&*server.name, docs.tools().len()), ("fake", 3));
    assert_eq!((home.starts("fake"), state(&later, "fake")), (1, ServerState::Stopped));
    later.shutdown().await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home.catalog()), mode(&home.kept()[0])), (0o700, 0o600));
}

#[tokio::test]
async fn another_definition_of_the_same_name_is_asked_anew() {
    let mut home = Home::with(&[("fake", &["--few"])]);
    let bridge = home.bridge();
    assert_eq!(home.docs(&bridge, "fake").await.tools().len(), 1);
    home.define("fake", &["--few", "--tools", "1"]);
    assert!(bridge.known_docs("fake").await.is_none());
    assert_eq!(home.docs(&bridge, "fake").await.tools().len(), 2);
    assert_eq!((home.starts("fake"), home.kept().len()), (2, 2));
    bridge.shutdown().await;
}

#[tokio::test]
async fn whatever_lists_the_tools_keeps_them() {
    let home = Home::with(&[("fake", &[])]);
    let [bridge, other] = [home.bridge(), home.bridge()];
    home.call(&bridge, "echo", json!({})).await.unwrap();
    until("a call has filled the catalogue", async || other.known_docs("fake").await.is_some()).await;
    let before = other.known_docs("fake").await.unwrap().tools().len();
    home.call(&bridge, "change", json!({ "tools": 3 })).await.unwrap();
    let is_changed =
        async || other.known_docs("fake").await.is_some_and(|docs| docs.tools().len() == before + 3);
    until("what the server said has changed is in the catalogue", is_changed).await;
    assert_eq!(home.starts("fake"), 1);
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_server_whose_tools_always_change_is_not_asked_all_the_time() {
    let home = Home::with(&[("fake", &["--restless"])]);
    let bridge = home.bridge();
    home.call(&bridge, "echo", json!({})).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let listings = home.call(&bridge, "listings", json!({})).await.unwrap().value().unwrap();
    let listings: usize = listings["content"][0]["text"].as_str().unwrap().parse().unwrap();
    assert!((2..10).contains(&listings), "{listings}");
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_search_asks_the_servers_that_are_not_known() {
    let home = Home::with(&[
        ("one", &["--few"]),
        ("two", &["--few", "--tools", "1"]),
        ("broken", &["--exit-at-start", "3", "--stderr", "no luck"]),
    ]);
    let bridge = home.bridge();
    let searched = bridge.search("echo", 5, Detail::Summary, LONG).await;
    assert_eq!(found(&searched.tools), [("one", "echo"), ("two", "echo")]);
    assert_eq!(searched.unknown.len(), 1);
    let UnknownServer { name, failure } = &searched.unknown[0];
    assert!(name == "broken" && failure.as_ref().unwrap().why.error.contains("no luck"), "{failure:?}");
    // Neither is it tried again at once, nor is anybody kept waiting for it.
    let began = Instant::now();
    let again = bridge.search("echo", 5, Detail::Summary, LONG).await;
    assert_eq!(again, searched);
    assert!(began.elapsed() < LONG / 2);
    assert_eq!(["one", "two", "broken"].map(|name| home.starts(name)), [1, 1, 1]);
    let full = bridge.search("echo", 1, Detail::Full, LONG).await;
    assert!(full.tools[0].input_schema.as_ref().unwrap()["properties"]["zeta"].is_object());
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_search_waits_for_servers_only_so_long() {
    let home = Home::with(&[("quick", &["--few"]), ("slow", &["--few", "--slow-start", "4"])]);
    let bridge = home.bridge();
    home.docs(&bridge, "quick").await;
    let began = Instant::now();
    let searched = bridge.search("echo", 5, Detail::Summary, Duration::from_millis(100)).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(found(&searched.tools), [("quick", "echo")]);
    assert_eq!(searched.unknown, [UnknownServer { name: "slow".into(), failure: None }]);
    // Whoever comes next has its answer at once.
    let searched = bridge.search("echo", 5, Detail::Summary, LONG).await;
    assert_eq!(searched.unknown, [UnknownServer { name: "slow".into(), failure: None }]);
    let is_known = async || bridge.known_docs("slow").await.is_some();
    until("the server is asked while nobody waits", is_known).await;
    let searched = bridge.search("echo", 5, Detail::Summary, Duration::ZERO).await;
    assert_eq!((searched.tools.len(), searched.unknown.len(), home.starts("slow")), (2, 0, 1));
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_server_that_was_started_for_its_docs_is_soon_stopped() {
    let home = Home::with(&[("asked", &["--few"]), ("called", &[])]);
    let limits = Limits { docs_idle: Duration::from_millis(50), ..Limits::default() };
    let bridge = home.bridge_with(limits);
    let arguments = Map::new();
    bridge.call("called", "echo", raw(&arguments), CallOptions::new(&home.cancel)).await.unwrap();
    for server in ["asked", "called"] {
        home.docs(&bridge, server).await;
    }
    until("it is stopped", async || state(&bridge, "asked") == ServerState::Stopped).await;
    assert_eq!(state(&bridge, "called"), ServerState::Running);
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_server_that_a_search_asked_is_stopped_at_once() {
    let home = Home::with(&[("fake", &["--few"])]);
    let bridge = home.bridge_with(Limits { docs_idle: 100 * LONG, ..Limits::default() });
    assert_eq!(bridge.search("echo", 5, Detail::Summary, LONG).await.tools.len(), 1);
    until("it is stopped", async || state(&bridge, "fake") == ServerState::Stopped).await;
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_refresh_asks_servers_that_are_known() {
    let home =
        Home::with(&[("fake", &["--few"]), ("other", &["--few"]), ("broken", &["--exit-at-start", "1"])]);
    let bridge = home.bridge();
    home.docs(&bridge, "fake").await;
    let refreshed: Vec<_> =
        bridge.refresh(vec![bridge.server("fake").unwrap()], &home.cancel).collect().await;
    assert!(refreshed[0].docs.is_ok() && &*refreshed[0].server.name == "fake");
    let listings = bridge.call("fake", "listings", raw(&Map::new()), CallOptions::new(&home.cancel)).await;
    assert!(listings.is_err(), "a tool that is not listed was called");
    let all: Vec<_> = bridge.refresh(bridge.snapshot().servers.clone(), &home.cancel).collect().await;
    let mut outcomes: Vec<_> = all.iter().map(|one| (&*one.server.name, one.docs.is_ok())).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [("broken", false), ("fake", true), ("other", true)]);
    bridge.shutdown().await;
}

#[tokio::test]
async fn the_last_failure_is_known_until_the_server_answers_or_is_changed() {
    let home = Home::with(&[("fake", &["--fail-starts", "1"])]);
    let bridge = home.bridge();
    let failure = async || bridge.all_known_docs().await.remove(0).1.failure.map(|failure| failure.why.error);
    assert_eq!(failure().await, None);
    // A call is enough: nobody has to ask for its tools.
    home.call(&bridge, "echo", json!({})).await.unwrap_err();
    let why = failure().await.unwrap();
    assert!(why.starts_with("it exited before it was ready") && why.ends_with("not this time"), "{why}");
    home.call(&bridge, "echo", json!({})).await.unwrap();
    until("the failure is forgotten", async || failure().await.is_none()).await;
    bridge.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_is_on_disk_when_the_bridge_has_gone() {
    let home = Home::with(&[("fake", &["--tools", "500"])]);
    let bridge = home.bridge();
    home.call(&bridge, "echo", json!({})).await.unwrap();
    bridge.shutdown().await;
    assert_eq!(home.kept().len(), 1);
}

#[tokio::test]
async fn a_bridge_that_goes_does_not_wait_for_servers_that_are_asked() {
    let home = Home::with(&[("mute", &["--mute"])]);
    let bridge = home.bridge();
    bridge.search("x", 5, Detail::Summary, Duration::from_millis(50)).await;
    tokio::time::timeout(LONG, bridge.shutdown()).await.expect("it ended in time");
}

#[tokio::test]
async fn calls_are_checked_before_the_server_sees_them() {
    let home = Home::with(&[("fake", &["--tools", "1"])]);
    let bridge = home.bridge();
    let told = home.call(&bridge, "tool_0", json!({ "zetta": "x" })).await.unwrap_err();
    assert_eq!(
        told.to_string(),
        "could not call 'tool-0' of server 'fake': unknown argument 'zetta'; \
         did you mean 'zeta'?; signature: tool_0(zeta?, alpha?: int)"
    );
    // It goes by its own name, and says that it does not know it after all.
    let refused = home.call(&bridge, "tool_0", json!({ "zeta": "x" })).await.unwrap_err();
    assert!(
        matches!(&refused, UpstreamError::Refused { message, .. } if message.contains("tool-0")),
        "{refused}"
    );
    let unknown = home.call(&bridge, "tool_9", json!({})).await.unwrap_err().to_string();
    assert_eq!(unknown, "server 'fake' has no tool 'tool_9'; did you mean 'tool-0'?");
    assert_eq!(
        bridge.tool(&bridge.server("fake").unwrap(), "tool_0", &home.cancel).await.unwrap().name,
        "tool-0"
    );
    let error = bridge.tool(&bridge.server("fake").unwrap(), "wombat", &home.cancel).await.unwrap_err();
    assert!(matches!(error, UpstreamError::UnknownTool { nearest: None, .. }), "{error}");
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_tool_that_was_not_there_before_is_looked_for_once_more() {
    let home = Home::with(&[("fake", &["--quiet"])]);
    let bridge = home.bridge();
    home.call(&bridge, "change", json!({ "tools": 1 })).await.unwrap();
    let refused = home.call(&bridge, "tool-0", json!({})).await.unwrap_err();
    assert!(matches!(refused, UpstreamError::Refused { .. }), "{refused}");
    home.call(&bridge, "change", json!({ "tools": 2 })).await.unwrap();
    assert_eq!(home.docs(&bridge, "fake").await.position("tool-1"), None);
    bridge.tool(&bridge.server("fake").unwrap(), "tool-1", &home.cancel).await.unwrap();
    assert!(home.docs(&bridge, "fake").await.position("tool-1").is_some());
    bridge.shutdown().await;
}

#[tokio::test]
async fn a_server_that_lists_nothing_is_asked_all_the_same() {
    let home = Home::with(&[("fake", &["--no-tools"])]);
    let bridge = home.bridge();
    assert!(home.call(&bridge, "echo", json!({ "x": 1 })).await.is_ok());
    assert_eq!(home.docs(&bridge, "fake").await.tools().len(), 0);
    bridge.shutdown().await;
}

fn raw(arguments: &Map<String, Value>) -> RawArguments {
    RawArguments::new(serde_json::to_string(arguments).unwrap()).unwrap()
}
