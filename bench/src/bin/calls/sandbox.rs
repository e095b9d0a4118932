//! Calls that code in a sandbox makes: what the way there and back adds to the same call by a client.

use std::io;
use std::path::Path;
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, spawn_in};
use tokio::io::AsyncReadExt;

use crate::direct::Direct;
use crate::server::first_tool;
use crate::table::{Table, at, home, micros, millis};
use crate::warm::{SERVER, TEXT, TOOLS};

/// Where code runs.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) runtime: String,
    pub(crate) image: String,
}

/// Turns of each way.
const TURNS: usize = 5;

pub(crate) async fn measure(
    program: &Path,
    place: &Place,
    calls: usize,
    table: &mut Table,
) -> io::Result<()> {
    let home = home(1, TOOLS)?;
    let mut direct = Direct::start(TOOLS).await?;
    let tool = first_tool();
    let (mut theirs, mut ours, mut at_once) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        for _ in 0..calls / TURNS {
            let started = std::time::Instant::now();
            direct.call(&tool, TEXT).await?;
            theirs.push(started.elapsed());
        }
        let said = run(program, home.path(), place, &code(&tool, calls / TURNS)).await?;
        let mut lines = said.lines();
        let times = lines.next().unwrap_or_default().split(' ').filter_map(|time| time.parse().ok());
        ours.extend(times.map(Duration::from_nanos));
        at_once.extend(lines.filter_map(|time| time.parse().ok()).map(Duration::from_nanos));
    }
    if ours.len() < calls / TURNS * TURNS || at_once.is_empty() {
        return Err(io::Error::other(format!("{} calls of {calls} were timed", ours.len())));
    }
    let (their_p50, our_p50) = (at(&mut theirs, 0.5), at(&mut ours, 0.5));
    let name = &place.runtime;
    let both = |p50, p99| format!("{} / {}", micros(p50), micros(p99));
    let whole = both(our_p50, at(&mut ours, 0.99));
    table.row(&format!("a call by code in a sandbox of {name}, p50 / p99"), &whole, "-");
    let added = our_p50.saturating_sub(their_p50);
    table.row(&format!("pool and sandbox of {name} add, p50"), &micros(added), "<= 250 µs");
    let at_once = millis(at(&mut at_once, 0.5));
    table.row(&format!("200 calls at once in a sandbox of {name}, p50"), &at_once, "-");
    direct.stop().await
}

fn code(tool: &str, calls: usize) -> String {
    format!(
        "import asyncio, time\n\
         async def one():\n    \
             before = time.perf_counter_ns()\n    \
             await mcp_server_0.{tool}(text={TEXT:?})\n    \
             return time.perf_counter_ns() - before\n\
         for _ in range(20): await one()\n\
         print(*[await one() for _ in range({calls})])\n\
         for _ in range(5):\n    \
             before = time.perf_counter_ns()\n    \
             await asyncio.gather(*[one() for _ in range(200)])\n    \
             print(time.perf_counter_ns() - before)\n"
    )
}

async fn run(program: &Path, home: &Path, place: &Place, code: &str) -> io::Result<String> {
    let words =
        ["exec", "--runtime", &place.runtime, "--image", &place.image, "--server", SERVER, "-c", code];
    let command = CommandLine::new(program.canonicalize()?).args(words);
    let environment = ["HOME", "PATH", "DOCKER_HOST"]
        .map(|name| {
            (name, if name == "HOME" { home.into() } else { std::env::var_os(name).unwrap_or_default() })
        })
        .into_iter()
        .filter(|(_, value)| !value.is_empty());
    let mut child = spawn_in(&command, environment, Some(home))?;
    drop(child.stdin.take());
    let (mut text, mut complaint) = (String::new(), String::new());
    if let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) {
        tokio::try_join!(stdout.read_to_string(&mut text), stderr.read_to_string(&mut complaint))?;
    }
    match child.wait().await?.success() {
        true => Ok(text),
        false => Err(io::Error::other(format!("the code failed: {complaint}"))),
    }
}
