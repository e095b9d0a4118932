//! A small MCP client: one bridge process, JSON lines on its pipes.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::{CommandLine, spawn_piped};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// A bridge under measurement.
pub struct Bridge {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    next_id: u64,
    /// From the spawn to the answer of `initialize`.
    pub startup: Duration,
}

impl Bridge {
    /// Starts a bridge and initializes it.
    pub async fn start(program: &Path, args: &[String]) -> io::Result<Self> {
        let started = Instant::now();
        let command = CommandLine::new(program).args(args);
        let mut child = spawn_piped(&command).map_err(io::Error::other)?;
        let gone = || io::Error::other("no pipe");
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        if let Some(mut stderr) = child.stderr.take() {
            tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await });
        }
        let mut bridge = Self { child, stdin, lines, next_id: 1, startup: Duration::ZERO };
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}
        });
        let id = bridge.send("initialize", params).await?;
        bridge.answers(&[id]).await?;
        bridge.startup = started.elapsed();
        bridge.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(bridge)
    }

    async fn write(&mut self, message: &Value) -> io::Result<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await
    }

    async fn send(&mut self, method: &str, params: Value) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        Ok(id)
    }

    async fn answers(&mut self, ids: &[u64]) -> io::Result<HashMap<u64, Value>> {
        let mut found = HashMap::new();
        while found.len() < ids.len() {
            let line = self.lines.next_line().await?.ok_or_else(|| io::Error::other("the bridge is gone"))?;
            let message: Value = serde_json::from_str(&line).map_err(io::Error::other)?;
            if let Some(id) = message["id"].as_u64().filter(|id| ids.contains(id)) {
                found.insert(id, message);
            }
        }
        Ok(found)
    }

    /// Calls `run_python` once for each session, all at the same time; the results in that order.
    pub async fn run_each(&mut self, code: &str, sessions: &[String]) -> io::Result<Vec<Value>> {
        let mut ids = Vec::new();
        for session in sessions {
            let arguments = json!({"code": code, "session": session, "timeout": 120});
            ids.push(self.send("tools/call", json!({"name": "run_python", "arguments": arguments})).await?);
        }
        let mut found = self.answers(&ids).await?;
        let results = ids.iter().map(|id| found.remove(id).unwrap_or_default()).map(|mut message| {
            if message["result"]["isError"] == false {
                Ok(message["result"].take())
            } else {
                Err(io::Error::other(format!("the call failed: {message}")))
            }
        });
        results.collect()
    }

    /// Calls `run_python` with these arguments and does not wait for its answer.
    ///
    /// # Errors
    /// The bridge is gone.
    pub async fn begin(&mut self, arguments: Value) -> io::Result<()> {
        self.send("tools/call", json!({"name": "run_python", "arguments": arguments})).await.map(drop)
    }

    /// Calls `run_python` once and times it.
    pub async fn run(&mut self, code: &str) -> io::Result<Duration> {
        let started = Instant::now();
        self.run_each(code, &["main".to_string()]).await?;
        Ok(started.elapsed())
    }

    /// A line of `/proc/PID/status` of the bridge, in kilobytes.
    pub fn status(&self, field: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    }

    /// Closes its input and waits for its end.
    pub async fn stop(mut self) -> io::Result<()> {
        drop(self.stdin);
        match tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(late) => {
                self.child.kill().await?;
                Err(io::Error::other(late))
            }
        }
    }
}
