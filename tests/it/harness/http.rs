//! A bridge that listens, and clients that talk to it over HTTP. They are written from the text of the protocols.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bridge::{Bridge, BridgeBuilder, LATEST_WITH_INITIALIZE};
use super::env::TestEnv;
use super::outcome::Outcome;
use super::process::eventually;

/// How long a bridge may take to listen, on a loaded machine.
const START: Duration = Duration::from_secs(30);

/// A bridge that listens on a port of this machine.
pub(crate) struct HttpBridge<'a> {
    pub(crate) bridge: Bridge<'a>,
    /// Host and port.
    pub(crate) address: String,
}

impl<'a> BridgeBuilder<'a> {
    /// Starts it, and waits until it listens.
    pub(crate) fn listen(self) -> HttpBridge<'a> {
        self.args(&["serve", "--http", "127.0.0.1:0"]).spawn_listening()
    }

    /// Likewise, with the arguments that it has.
    pub(crate) fn spawn_listening(self) -> HttpBridge<'a> {
        let bridge = self.spawn();
        let address = eventually("it listens", START, || {
            let log = bridge.log();
            let line =
                log.lines().find_map(|line| line.strip_prefix("listening on http")?.split_once("://"))?;
            Some(line.1.strip_suffix("/mcp")?.to_owned())
        });
        HttpBridge { bridge, address }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let mut reply = Self { status, headers: lines.map(header).collect(), body: String::new() };
        let body = &bytes[end + 4..];
        let is_chunked = reply.header("transfer-encoding") == Some("chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_vec() };
        reply.body = String::from_utf8(body).unwrap();
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The messages in it: events, or one message.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if self.header("content-type") != Some("text/event-stream") {
            return vec![serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))];
        }
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
    body
}

/// Sends bytes over a connection, and returns all that comes back until its end.
pub(crate) fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Vec<u8> {
    // A server that refuses a request need not read all of it.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The bytes of a request, after which the server closes the connection.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    (text + "\r\n" + body).into_bytes()
}

impl<'a> HttpBridge<'a> {
    /// The token that the bridge made at its start.
    pub(crate) fn start_token(&self) -> String {
        eventually("it prints its token", START, || {
            let log = self.bridge.log();
            let token = log.lines().find(|line| line.starts_with("token, "))?.rsplit(' ').next()?;
            (token.len() == 68).then(|| token.to_owned())
        })
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Sends a request exactly as it is given, with a fitting `Host`.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let host = [("Host", self.address.as_str())];
        let all = [&host, headers].concat();
        Reply::parse(&exchange(self.connect(), &request(method, path, &all, body)))
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&self, bytes: &[u8]) -> Reply {
        Reply::parse(&exchange(self.connect(), bytes))
    }

    pub(crate) fn get(&self, path: &str, token: Option<&str>) -> Reply {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = bearer.iter().map(|value| ("Authorization", value.as_str())).collect();
        self.send("GET", path, &headers, "")
    }

    /// A client with a token, which has opened a session.
    pub(crate) fn client<'b>(&'b self, token: &str) -> HttpClient<'a, 'b> {
        let client = self.stranger(token);
        client.open(json!({}));
        client
    }

    /// A client with a token, and without a session.
    pub(crate) fn stranger<'b>(&'b self, token: &str) -> HttpClient<'a, 'b> {
        let (session, next_id) = (Mutex::default(), AtomicI64::new(1));
        HttpClient { http: self, token: token.to_owned(), session, next_id }
    }
}

/// A client of one user.
pub(crate) struct HttpClient<'a, 'b> {
    http: &'b HttpBridge<'a>,
    token: String,
    pub(crate) session: Mutex<Option<String>>,
    next_id: AtomicI64,
}

impl HttpClient<'_, '_> {
    /// Posts a message.
    pub(crate) fn post(&self, message: &Value) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let session = self.session.lock().unwrap().clone();
        let meta = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let mut headers = vec![
            ("Authorization", bearer.as_str()),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        headers.extend(session.as_deref().map(|id| ("Mcp-Session-Id", id)));
        if let Some(version) = meta.as_str() {
            headers.push(("MCP-Protocol-Version", version));
            headers.push(("Mcp-Method", message["method"].as_str().unwrap()));
            headers.extend(message["params"]["name"].as_str().map(|name| ("Mcp-Name", name)));
        }
        self.http.send("POST", "/mcp", &headers, &message.to_string())
    }

    /// Opens a session.
    pub(crate) fn open(&self, capabilities: Value) {
        let params = json!({
            "protocolVersion": LATEST_WITH_INITIALIZE,
            "capabilities": capabilities,
            "clientInfo": { "name": "codebridge-tests", "version": "1" },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let reply = self.post(&message).expect(200);
        *self.session.lock().unwrap() = Some(reply.header("mcp-session-id").unwrap().to_owned());
        let _ = self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).expect(202);
    }

    /// Sends a request; the messages that come, the answer last.
    pub(crate) fn request(&self, method: &str, params: Value) -> Vec<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let messages = self.post(&message).expect(200).messages();
        assert_eq!(messages.last().map(|last| &last["id"]), Some(&json!(id)), "{messages:?}");
        messages
    }

    /// Sends a request, which has a result.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        let mut last = self.request(method, params).pop().unwrap();
        assert!(last.get("result").is_some(), "{last}");
        last["result"].take()
    }

    pub(crate) fn call(&self, arguments: Value) -> Outcome {
        let began = Instant::now();
        let result = self.ask("tools/call", json!({ "name": "run_python", "arguments": arguments }));
        Outcome::parse(&result, began.elapsed())
    }

    pub(crate) fn run(&self, code: &str) -> Outcome {
        self.call(json!({ "code": code }))
    }
}

impl TestEnv {
    /// Makes a token with `codebridge token add`.
    pub(crate) fn token(&self, words: &[&str]) -> String {
        let words = [&["token", "add"], words].concat();
        self.bridge().args(&words).command().run(self.guard()).ok().trim().to_owned()
    }
}
