//! Bridges that have just started, and what they know of 10,000 tools that other bridges asked for.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use codebridge::policy::Policy;
use codebridge::upstream::catalog::Detail;
use codebridge_runtimes::exec::{CommandLine, spawn_in};
use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::table::{Table, at, home, millis};
use crate::warm::upstream;

const SERVERS: usize = 40;
const TOOLS_OF_EACH: usize = 250;
const ROUNDS: usize = 15;
const QUERY: &str = "create an issue in a repository";

pub(crate) async fn measure(program: &Path, table: &mut Table) -> io::Result<()> {
    let home = home(SERVERS, TOOLS_OF_EACH)?;
    let tools = SERVERS * TOOLS_OF_EACH;
    let started = Instant::now();
    let listed = run(program, home.path(), &["servers", "refresh", "--json"]).await?.0;
    let known: u64 = listed.as_array().into_iter().flatten().filter_map(|one| one["tools"].as_u64()).sum();
    if known != tools as u64 {
        return Err(io::Error::other(format!("{known} tools are known, not {tools}")));
    }
    table.row(&format!("asking {SERVERS} servers for {tools} tools"), &millis(started.elapsed()), "-");

    let (mut load, mut first) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let bridge = upstream(home.path(), Policy::none(), codebridge::audit::Audit::off());
        let started = Instant::now();
        let known = bridge.all_known_docs().await;
        load.push(started.elapsed());
        if known.iter().any(|(_, known)| known.docs.is_none()) {
            return Err(io::Error::other("not all of it was loaded"));
        }
        let bridge = upstream(home.path(), Policy::none(), codebridge::audit::Audit::off());
        let started = Instant::now();
        let found = bridge.search(QUERY, 5, Detail::Summary, Duration::ZERO).await;
        first.push(started.elapsed());
        if found.tools.len() != 5 || !found.unknown.is_empty() {
            return Err(io::Error::other(format!("this was found: {found:?}")));
        }
    }
    table.row(&format!("finding and loading {tools} tools, p50"), &millis(at(&mut load, 0.5)), "<= 100 ms");
    table.row("the same and the first search, p50", &millis(at(&mut first, 0.5)), "<= 150 ms");

    let mut whole = Vec::new();
    for _ in 0..ROUNDS {
        let (found, time) = run(program, home.path(), &["tools", "search", QUERY, "--json"]).await?;
        if found.as_array().is_none_or(|found| found.len() != 5) {
            return Err(io::Error::other(format!("this was found: {found}")));
        }
        whole.push(time);
    }
    table.row("`codebridge tools search` from start to end, p50", &millis(at(&mut whole, 0.5)), "<= 150 ms");
    Ok(())
}

/// What the bridge prints, and how long it takes from its start to its end.
async fn run(program: &Path, home: &Path, args: &[&str]) -> io::Result<(Value, Duration)> {
    let program = program.canonicalize()?;
    let command = CommandLine::new(program).args(args);
    let environment = [("HOME", home.as_os_str().to_owned())];
    let started = Instant::now();
    let mut child = spawn_in(&command, environment, Some(home))?;
    drop(child.stdin.take());
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text).await?;
    }
    let status = child.wait().await?;
    let time = started.elapsed();
    if !status.success() {
        return Err(io::Error::other(format!("{args:?} ended with {status}")));
    }
    Ok((serde_json::from_str(&text).map_err(io::Error::other)?, time))
}
