//! A bridge under test, and an MCP client that talks to it over its standard streams, line by line.
//!
//! The client is written from the text of the protocol, so that it shares no mistake with the library of the server.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::env::TestEnv;
use super::matrix::Machine;
use super::outcome::Outcome;
use super::process::{Prepared, Running, Transcript, collect, eventually, peak_memory};

/// The newest protocol version with an `initialize`.
pub(crate) const LATEST_WITH_INITIALIZE: &str = "2025-11-25";
/// Longer messages are shown in part.
const SHOWN: usize = 600;

/// How a bridge is to be started.
#[derive(Debug)]
pub(crate) struct BridgeBuilder<'a> {
    env: &'a TestEnv,
    command: Prepared,
    sockets: bool,
    prefix: Vec<OsString>,
}

impl<'a> BridgeBuilder<'a> {
    fn new(env: &'a TestEnv) -> Self {
        let command = env.command(env.binary());
        // Tests count sandboxes; those of spares ask for them.
        let builder = Self { env, command, sockets: false, prefix: Vec::new() }
            .var("MCP_BRIDGE_LOG_LEVEL", "debug")
            .var("MCP_BRIDGE_WARM", "0");
        match env.runtime_if_any() {
            Some(runtime) => builder
                .var("MCP_BRIDGE_RUNTIME", runtime.kind.setting())
                .var("MCP_BRIDGE_IMAGE", Machine::get().usual_image(runtime)),
            None => builder,
        }
    }

    /// Sets a variable.
    pub(crate) fn var(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env.insert(name.into(), value.into());
        self
    }

    /// Takes a variable away.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env.remove(&OsString::from(name));
        self
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.argv.extend(args.iter().map(Into::into));
        self
    }

    /// Starts it in another folder than the home.
    pub(crate) fn in_folder(mut self, folder: PathBuf) -> Self {
        self.command.cwd = folder;
        self
    }

    /// Gives it a pair of AF_UNIX sockets in place of pipes, as Node does.
    pub(crate) fn on_sockets(mut self) -> Self {
        self.sockets = true;
        self
    }

    /// Lets another program, run as root, start it.
    pub(crate) fn behind<S: Into<OsString>>(mut self, prefix: impl IntoIterator<Item = S>) -> Self {
        self.prefix = prefix.into_iter().map(Into::into).collect();
        self
    }

    /// The command itself, for other things than serving.
    pub(crate) fn command(self) -> Prepared {
        self.command.behind(self.prefix)
    }

    /// Starts it without sending anything.
    pub(crate) fn spawn(self) -> Bridge<'a> {
        let (env, sockets) = (self.env, self.sockets);
        let command = self.command();
        if !sockets {
            let mut process = command.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::piped());
            let (input, output) = (process.child.stdin.take().unwrap(), process.child.stdout.take().unwrap());
            return Bridge::new(env, process, Box::new(input), Box::new(output));
        }
        // One pair for each direction, as Node makes them.
        let (input, its_input) = UnixStream::pair().unwrap();
        let (output, its_output) = UnixStream::pair().unwrap();
        let stdio = |socket: UnixStream| Stdio::from(OwnedFd::from(socket));
        let process = command.spawn(env.guard(), stdio(its_input), stdio(its_output), Stdio::piped());
        Bridge::new(env, process, Box::new(input), Box::new(output))
    }

    /// Starts it and initializes the connection.
    pub(crate) fn start(self) -> Bridge<'a> {
        self.start_for(json!({}))
    }

    pub(crate) fn start_showing_forms(self) -> Bridge<'a> {
        self.start_for(json!({ "elicitation": {} }))
    }

    /// The same for a client with capabilities.
    pub(crate) fn start_for(self, capabilities: Value) -> Bridge<'a> {
        let bridge = self.spawn();
        bridge.initialize_for(LATEST_WITH_INITIALIZE, capabilities);
        bridge
    }
}

impl TestEnv {
    /// A bridge to be started: the test's runtime, its usual image, nothing else set.
    pub(crate) fn bridge(&self) -> BridgeBuilder<'_> {
        BridgeBuilder::new(self)
    }
}

/// A running bridge.
pub(crate) struct Bridge<'a> {
    env: &'a TestEnv,
    process: Running,
    input: Mutex<Option<Box<dyn Write + Send>>>,
    shared: Arc<Shared>,
    next_id: AtomicI64,
    began: Instant,
    logging: JoinHandle<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Who waits for an answer, by request id as JSON.
    waiting: Mutex<HashMap<String, Sender<Arrived>>>,
    /// Messages that are no responses: notifications, requests, errors without id; and whether the stream has ended.
    others: Mutex<(Vec<Value>, bool)>,
    another: Condvar,
    /// Lines that are no JSON-RPC message.
    garbage: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Arrived {
    message: Value,
    at: Instant,
}

impl<'a> Bridge<'a> {
    fn new(
        env: &'a TestEnv,
        mut process: Running,
        input: Box<dyn Write + Send>,
        output: Box<dyn Read + Send>,
    ) -> Self {
        let shared = Arc::<Shared>::default();
        let transcript = process.transcript.clone();
        let logging = collect(process.child.stderr.take().unwrap(), transcript.clone());
        let reader = Arc::clone(&shared);
        thread::spawn(move || {
            for line in BufReader::with_capacity(1 << 20, output).split(b'\n') {
                match line {
                    Ok(line) => reader.take(&line, &transcript),
                    Err(_) => break,
                }
            }
            // Whoever still waits learns that nothing will come.
            reader.waiting.lock().unwrap().clear();
            reader.others.lock().unwrap().1 = true;
            reader.another.notify_all();
        });
        let (input, next_id) = (Mutex::new(Some(input)), AtomicI64::new(1));
        Self { env, process, input, shared, next_id, began: Instant::now(), logging }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn env(&self) -> &'a TestEnv {
        self.env
    }

    /// What it has logged, and the messages in between.
    pub(crate) fn log(&self) -> String {
        self.process.transcript.text()
    }

    // Messages.

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&self, bytes: &[u8]) {
        let mut input = self.input.lock().unwrap();
        let input = input.as_mut().expect("its standard input is closed");
        match input.write_all(bytes).and_then(|()| input.flush()) {
            // It has ended: whoever waits for an answer sees that.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
    }

    /// Sends one message.
    pub(crate) fn send(&self, message: &Value) {
        let mut line = message.to_string();
        note(&self.process.transcript, "-> ", line.as_bytes());
        line.push('\n');
        self.send_raw(line.as_bytes());
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request.
    pub(crate) fn request(&self, method: &str, params: Value) -> Pending<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let pending = self.expect_answer(&json!(id), method);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        pending
    }

    /// Waits for the answer to a request that is sent by other means.
    pub(crate) fn expect_answer(&self, id: &Value, what: &str) -> Pending<'_> {
        let (sender, receiver) = channel();
        self.shared.waiting.lock().unwrap().insert(id.to_string(), sender);
        Pending { bridge: self, id: id.clone(), what: what.into(), receiver, sent: Instant::now() }
    }

    /// Sends a request and waits for its result.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        self.request(method, params).result()
    }

    /// The handshake of the older era.
    pub(crate) fn initialize(&self, version: &str) -> Value {
        self.initialize_for(version, json!({}))
    }

    fn initialize_for(&self, version: &str, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": { "name": "codebridge-tests", "version": "1" },
        });
        let answer = self.ask("initialize", params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    /// Messages that came without being asked for.
    pub(crate) fn unasked(&self) -> Vec<Value> {
        self.shared.others.lock().unwrap().0.clone()
    }

    // Calls of the tool.

    /// Starts a call of `run_python` with these arguments.
    pub(crate) fn start_call(&self, arguments: Value) -> PendingCall<'_> {
        PendingCall(self.request("tools/call", json!({ "name": "run_python", "arguments": arguments })))
    }

    /// Starts code that prints `ready`, and returns when it has. `more` are further arguments.
    pub(crate) fn start_until_ready(&self, session: &str, code: &str, more: Value) -> PendingCall<'_> {
        let pending = self.start_saying_ready(session, code, more);
        self.wait_until_ready(&pending);
        pending
    }

    /// Starts code that prints `ready` at some time.
    pub(crate) fn start_saying_ready(&self, session: &str, code: &str, more: Value) -> PendingCall<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut arguments = json!({ "code": code, "session": session });
        for (key, value) in more.as_object().into_iter().flatten() {
            arguments[key] = value.clone();
        }
        let token = progress_token(&json!(id));
        let pending = self.expect_answer(&json!(id), "tools/call");
        self.send(&json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "run_python", "arguments": arguments, "_meta": { "progressToken": token } },
        }));
        PendingCall(pending)
    }

    pub(crate) fn wait_until_ready(&self, call: &PendingCall<'_>) {
        let mut others = self.shared.others.lock().unwrap();
        while progress_of(&others.0, &call.0.id).is_none() {
            assert!(!call.0.is_answered(), "the code never said 'ready'; all that came: {:?}", others.0);
            assert!(!others.1, "the connection ended before the code was ready");
            others = self.shared.another.wait(others).unwrap();
        }
    }

    pub(crate) fn has_said_ready(&self, call: &PendingCall<'_>) -> bool {
        progress_of(&self.shared.others.lock().unwrap().0, &call.0.id).is_some()
    }

    /// Calls `run_python` with these arguments.
    pub(crate) fn call(&self, arguments: Value) -> Outcome {
        self.start_call(arguments).outcome()
    }

    /// Runs code in the default session.
    pub(crate) fn run(&self, code: &str) -> Outcome {
        self.call(json!({ "code": code }))
    }

    /// Runs code in this session.
    pub(crate) fn run_in(&self, session: &str, code: &str) -> Outcome {
        self.call(json!({ "code": code, "session": session }))
    }

    // Its end.

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Ends its standard input.
    pub(crate) fn hang_up(&self) {
        drop(self.input.lock().unwrap().take());
    }

    /// Waits for its end. Everything that it wrote to its standard output must have been messages.
    pub(crate) fn wait(mut self, limit: Duration) -> Ended {
        let status = self.process.wait_within(limit);
        eventually("nobody holds its standard error", limit, || self.logging.is_finished().then_some(()));
        self.assert_only_messages();
        Ended { status, log: self.log() }
    }

    /// Ends it in the ordinary way.
    pub(crate) fn close(self) -> Ended {
        self.hang_up();
        let ended = self.wait(Duration::from_secs(60));
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        ended
    }

    pub(crate) fn assert_only_messages(&self) {
        let garbage = self.shared.garbage.lock().unwrap();
        assert!(garbage.is_empty(), "not a message on standard output: {garbage:?}");
    }

    pub(crate) fn peak_memory(&self) -> u64 {
        peak_memory(self.pid())
    }

    /// How long it has been running.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

/// A bridge that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) log: String,
}

impl Shared {
    fn take(&self, line: &[u8], transcript: &Transcript) {
        note(transcript, "<- ", line);
        let at = Instant::now();
        let message: Value = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(_) => return self.garbage.lock().unwrap().push(String::from_utf8_lossy(line).into_owned()),
        };
        if message["jsonrpc"] != "2.0" {
            return self.garbage.lock().unwrap().push(message.to_string());
        }
        let answers = message.get("result").is_some() || message.get("error").is_some();
        let waiting =
            answers.then(|| self.waiting.lock().unwrap().remove(&message["id"].to_string())).flatten();
        match waiting {
            Some(sender) => {
                // Nobody waits any more when the test has let go of the answer.
                let _ = sender.send(Arrived { message, at });
                // Taken and released, so that who has just looked for the answer is asleep by now.
                drop(self.others.lock().unwrap());
                self.another.notify_all();
            }
            None => {
                self.others.lock().unwrap().0.push(message);
                self.another.notify_all();
            }
        }
    }
}

fn note(transcript: &Transcript, direction: &str, line: &[u8]) {
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    let cut = if line.len() > SHOWN { format!("… ({} bytes)", line.len()) } else { String::new() };
    transcript.push(format!("{direction}{shown}{cut}\n").as_bytes());
}

/// A request without an answer yet.
#[must_use]
pub(crate) struct Pending<'a> {
    bridge: &'a Bridge<'a>,
    id: Value,
    what: String,
    receiver: Receiver<Arrived>,
    sent: Instant,
}

impl Pending<'_> {
    /// The answer, and how long it took; None when the connection ended first.
    pub(crate) fn answer_if_any(self) -> Option<(Value, Duration)> {
        let guard = self.bridge.process.guard();
        // Some more time than the guard takes to end the bridge, which ends this wait.
        match self.receiver.recv_timeout(guard.left() + Duration::from_secs(10)) {
            Ok(arrived) => Some((arrived.message, arrived.at - self.sent)),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no answer to {}", self.what),
        }
    }

    /// The answer, and how long it took.
    pub(crate) fn answer(self) -> (Value, Duration) {
        let (what, id) = (self.what.clone(), self.id.clone());
        self.answer_if_any()
            .unwrap_or_else(|| panic!("the connection ended before {what} ({id}) was answered"))
    }

    /// The result; an error is none.
    pub(crate) fn result(self) -> Value {
        let what = self.what.clone();
        let (mut message, _) = self.answer();
        assert!(message.get("error").is_none(), "{what} was refused: {message}");
        message["result"].take()
    }

    /// The error: code and message.
    pub(crate) fn error(self) -> (i64, String) {
        let (message, _) = self.answer();
        let error = message.get("error").unwrap_or_else(|| panic!("not an error: {message}"));
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_string())
    }

    /// Whether the answer has arrived.
    pub(crate) fn is_answered(&self) -> bool {
        !self.bridge.shared.waiting.lock().unwrap().contains_key(&self.id.to_string())
    }

    /// Cancels the call.
    pub(crate) fn cancel(&self) {
        self.bridge.notify("notifications/cancelled", json!({ "requestId": self.id, "reason": "test" }));
    }
}

/// A call of `run_python` that has not ended yet.
#[must_use]
pub(crate) struct PendingCall<'a>(pub(crate) Pending<'a>);

fn progress_token(id: &Value) -> String {
    format!("token-{id}")
}

/// The latest progress of a call that has said `ready`.
fn progress_of(messages: &[Value], id: &Value) -> Option<String> {
    let token = progress_token(id);
    let texts = messages.iter().filter(|message| {
        message["method"] == "notifications/progress" && message["params"]["progressToken"] == *token
    });
    let mut texts = texts.filter_map(|message| message["params"]["message"].as_str());
    texts.rfind(|text| text.contains("ready")).map(String::from)
}

impl PendingCall<'_> {
    /// The line with which a call started by [`Bridge::start_until_ready`] said that it was ready.
    pub(crate) fn progress(&self) -> String {
        let others = self.0.bridge.shared.others.lock().unwrap();
        progress_of(&others.0, &self.0.id).expect("the call has made no progress")
    }

    pub(crate) fn outcome(self) -> Outcome {
        let what = self.0.what.clone();
        let (message, elapsed) = self.0.answer();
        assert!(message.get("error").is_none(), "{what} was refused: {message}");
        Outcome::parse(&message["result"], elapsed)
    }
}
