//! A bridge that listens, and what the kernel says of it.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use codebridge::tokens::{NewToken, Scopes, Tokens};
use codebridge_runtimes::exec::{CommandLine, spawn_piped};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::http::Client;
use crate::options::Options;

/// How long a bridge may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bridge {
    child: Child,
    address: String,
    /// One for each user.
    tokens: Vec<String>,
    _home: TempDir,
}

impl Bridge {
    /// Starts one for so many users, with these flags.
    pub(crate) async fn start(options: &Options, users: usize, flags: &[&str]) -> io::Result<Self> {
        let fixed = ["--runtime", &options.runtime, "--image", &options.image];
        let command = CommandLine::new(&options.program);
        Self::start_with(command, users, &[&fixed, flags].concat()).await
    }

    /// The same with a command line that has no arguments yet.
    pub(crate) async fn start_with(command: CommandLine, users: usize, flags: &[&str]) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        let tokens = tokens(&home, users)?;
        let state = home.path().to_string_lossy().into_owned();
        let args = ["serve", "--http", "127.0.0.1:0", "--state-dir", &state, "--log-level", "warn"];
        let command = command.args(args).args(flags);
        let mut child = spawn_piped(&command).map_err(io::Error::other)?;
        let stderr = child.stderr.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let mut lines = BufReader::new(stderr).lines();
        let address = async {
            while let Some(line) = lines.next_line().await? {
                let url = line.strip_prefix("listening on http://");
                if let Some(address) = url.and_then(|url| url.strip_suffix("/mcp")) {
                    return Ok(address.to_owned());
                }
            }
            Err(io::Error::other("the bridge does not listen"))
        };
        let address = tokio::time::timeout(PATIENCE, address).await.map_err(io::Error::other)??;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, address, tokens, _home: home })
    }

    /// Connects as a user.
    pub(crate) async fn client(&self, user: usize) -> io::Result<Client> {
        Client::connect(&self.address, &self.tokens[user % self.tokens.len()]).await
    }

    /// Connects as nobody.
    pub(crate) async fn stranger(&self) -> io::Result<Client> {
        Client::connect(&self.address, "").await
    }

    fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Private memory of the bridge, in KB.
    pub(crate) fn memory(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    }

    /// Descriptors that the bridge has open.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Processor time that the bridge has taken.
    pub(crate) fn time(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// Memory of all processes under the bridge, shared parts divided among those that share them, in KB.
    pub(crate) fn memory_below(&self) -> f64 {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent =
                text.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
            if let Some(parent) = parent {
                children.entry(parent).or_default().push(pid);
            }
        }
        let (mut below, mut all) = (children.remove(&self.pid()).unwrap_or_default(), 0.0);
        while let Some(pid) = below.pop() {
            below.extend(children.remove(&pid).unwrap_or_default());
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            all +=
                line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default();
        }
        all
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        tokio::time::timeout(PATIENCE, self.child.wait()).await.map_err(io::Error::other)??;
        Ok(())
    }
}

fn tokens(home: &TempDir, users: usize) -> io::Result<Vec<String>> {
    let tokens = Tokens::at(home.path());
    let token = |user: usize| {
        let principal = format!("user-{user}").parse().map_err(io::Error::other)?;
        tokens.add(NewToken { principal, scopes: Scopes::mcp(), lifetime: None }).map_err(io::Error::other)
    };
    (0..users).map(token).collect()
}
