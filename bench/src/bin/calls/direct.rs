//! A client without a bridge: lines to a server and back.

use std::io;
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, spawn_piped};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

pub(crate) struct Direct {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    next_id: u64,
}

impl Direct {
    pub(crate) async fn start(tools: usize) -> io::Result<Self> {
        let args = ["server".to_owned(), tools.to_string(), "0".to_owned()];
        let command = CommandLine::new(std::env::current_exe()?).args(args);
        let mut child = spawn_piped(&command).map_err(io::Error::other)?;
        let gone = || io::Error::other("no pipe");
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        let mut direct = Self { child, stdin, lines, next_id: 1 };
        let client = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        direct.ask("initialize", hello).await?;
        Ok(direct)
    }

    pub(crate) async fn call(&mut self, tool: &str, text: &str) -> io::Result<Value> {
        self.ask("tools/call", json!({ "name": tool, "arguments": { "text": text } })).await
    }

    async fn ask(&mut self, method: &str, params: Value) -> io::Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stdin.write_all(format!("{message}\n").as_bytes()).await?;
        let line = self.lines.next_line().await?.ok_or_else(|| io::Error::other("the server is gone"))?;
        let mut answer: Value = serde_json::from_str(&line).map_err(io::Error::other)?;
        if answer["id"] != id {
            return Err(io::Error::other(format!("an answer to another request: {answer}")));
        }
        Ok(answer["result"].take())
    }

    pub(crate) async fn stop(mut self) -> io::Result<()> {
        drop(self.stdin);
        tokio::time::timeout(Duration::from_secs(10), self.child.wait())
            .await
            .map_err(io::Error::other)??;
        Ok(())
    }
}
