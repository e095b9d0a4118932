//! A client of MCP over HTTP on one connection.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    head: String,
    session: Option<String>,
    next_id: u64,
}

impl Client {
    pub(crate) async fn connect(address: &str, token: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let head = format!(
            "Host: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n"
        );
        Ok(Self { stream: BufReader::new(stream), head, session: None, next_id: 1 })
    }

    /// Opens a session of the protocol.
    pub(crate) async fn open(&mut self) -> io::Result<()> {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" },
        });
        self.ask("initialize", params).await?;
        self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await.map(drop)
    }

    /// Ends the session.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.send("DELETE", "", "").await?;
        self.answer().await?;
        self.session = None;
        Ok(())
    }

    /// Runs code, which has to succeed.
    pub(crate) async fn run(&mut self, code: &str, session: &str) -> io::Result<()> {
        let result = self.call(code, session).await?;
        match result["isError"] == false {
            true => Ok(()),
            false => Err(io::Error::other(format!("the call failed: {result}"))),
        }
    }

    /// Runs code, and returns the result.
    pub(crate) async fn call(&mut self, code: &str, session: &str) -> io::Result<Value> {
        let arguments = json!({ "code": code, "session": session, "timeout": 120 });
        self.ask("tools/call", json!({ "name": "run_python", "arguments": arguments })).await
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> io::Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = self.post(&message).await?;
        let lines = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
        let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let answer = messages.into_iter().find(|message| message["id"] == id);
        match answer {
            Some(mut answer) if answer.get("result").is_some() => Ok(answer["result"].take()),
            other => Err(io::Error::other(format!("no result: {other:?} in {body}"))),
        }
    }

    /// Asks something that needs no session, as clients of 2026-07-28 do.
    pub(crate) async fn discover(&mut self) -> io::Result<()> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta } });
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n";
        self.send("POST", headers, &body.to_string()).await?;
        self.answer().await.map(drop)
    }

    async fn post(&mut self, message: &Value) -> io::Result<String> {
        self.send("POST", "", &message.to_string()).await?;
        self.answer().await
    }

    async fn send(&mut self, method: &str, more: &str, body: &str) -> io::Result<()> {
        let session =
            self.session.as_ref().map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
        let head = &self.head;
        let length = body.len();
        let request =
            format!("{method} /mcp HTTP/1.1\r\n{head}{session}{more}Content-Length: {length}\r\n\r\n{body}");
        self.stream.write_all(request.as_bytes()).await
    }

    /// Reads an answer; the connection stays open.
    async fn answer(&mut self) -> io::Result<String> {
        let (mut status, mut length, mut is_chunked) = (None, 0, false);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else {
                status = line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
                continue;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().map_err(io::Error::other)?,
                "transfer-encoding" => is_chunked = value == "chunked",
                "mcp-session-id" => self.session = Some(value.to_owned()),
                _ => {}
            }
        }
        let body = if is_chunked { self.chunks().await? } else { self.bytes(length).await? };
        let body = String::from_utf8_lossy(&body).into_owned();
        match status {
            Some(200..300) => Ok(body),
            other => Err(io::Error::other(format!("status {other:?}: {body}"))),
        }
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let chunk = self.bytes(length + 2).await?;
            if length == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..length]);
        }
    }

    async fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Whether the bridge still has the connection open: nothing can be read from it, not even its end.
    pub(crate) fn is_open(&self) -> bool {
        let read = self.stream.get_ref().try_read(&mut [0; 1]);
        self.stream.buffer().is_empty() && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
