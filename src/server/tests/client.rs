//! A client that writes and reads lines, and nothing that would hide what goes over the wire.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake_sessions::FakeSessions;
use crate::server::{Connection, ServeError, serve};
use crate::settings::{RawSettings, Settings};

/// Longer than anything here takes, shorter than the patience of who waits for the tests.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Client {
    pub(super) to: Option<DuplexStream>,
    pub(super) from: BufReader<DuplexStream>,
    pub(super) sessions: Arc<FakeSessions>,
    pub(super) stop: CancellationToken,
    pub(super) hang_up: CancellationToken,
    pub(super) serving: JoinHandle<Result<(), ServeError>>,
}

impl Client {
    /// Connects, without a word.
    pub(super) fn connect() -> Self {
        let settings = Settings::resolve(&RawSettings::from_environment(&[].into()).unwrap()).unwrap();
        Self::connect_with(settings)
    }

    pub(super) fn connect_with(settings: Settings) -> Self {
        let (to, input) = duplex(64 << 10);
        let (output, from) = duplex(64 << 10);
        let sessions = Arc::new(FakeSessions::default());
        let (stop, hang_up) = (CancellationToken::new(), CancellationToken::new());
        let connection = Connection { input, output, hung_up: hang_up.clone().cancelled_owned() };
        let (theirs, stopped) = (sessions.clone(), stop.clone());
        let (_, events) = broadcast::channel(1);
        let serving =
            tokio::spawn(async move { serve(theirs, events, &settings, connection, stopped).await });
        Self { to: Some(to), from: BufReader::new(from), sessions, stop, hang_up, serving }
    }

    /// Connects and opens a session as clients up to 2025-11-25 do.
    pub(super) async fn open() -> Self {
        let mut client = Self::connect();
        client.initialize().await;
        client
    }

    pub(super) async fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let result = self.request(0, "initialize", params).await;
        self.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        result
    }

    pub(super) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let to = self.to.as_mut().unwrap();
        tokio::time::timeout(LIMIT, to.write_all(bytes.as_ref())).await.expect("nobody reads").unwrap();
    }

    pub(super) async fn send(&mut self, message: Value) {
        self.write(format!("{message}\n")).await;
    }

    /// The next line; None at the end.
    pub(super) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line);
        tokio::time::timeout(LIMIT, read).await.expect("no line came").unwrap();
        Some(line).filter(|line| !line.is_empty())
    }

    pub(super) async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("the server has closed")).unwrap()
    }

    /// Sends a request and takes the next line for its answer.
    pub(super) async fn request(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(super) async fn start_call(&mut self, id: i64, arguments: Value) {
        let params = json!({ "name": "run_python", "arguments": arguments });
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
    }

    /// Starts a call and waits until it runs.
    pub(super) async fn start_running(&mut self, id: i64, code: &str) {
        self.start_call(id, json!({ "code": code })).await;
        let started = self.sessions.started.notified();
        tokio::time::timeout(LIMIT, started).await.expect("the call did not start");
    }

    pub(super) async fn call(&mut self, id: i64, arguments: Value) -> Value {
        self.start_call(id, arguments).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    pub(super) async fn is_alive(&mut self) -> bool {
        self.request(9999, "ping", json!({})).await["result"] == json!({})
    }

    /// Closes the client's end and waits for the server's.
    pub(super) async fn close(mut self) -> Result<(), ServeError> {
        self.to = None;
        self.ended().await
    }

    pub(super) async fn ended(&mut self) -> Result<(), ServeError> {
        tokio::time::timeout(LIMIT, &mut self.serving).await.expect("the server does not end").unwrap()
    }
}
