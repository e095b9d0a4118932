//! Connections that wait for their next request, and those that never make one.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bridge::Bridge;
use crate::http::Client;
use crate::options::Options;
use crate::table::{Table, ms, p50_p99};

const CONNECTIONS: usize = 10_000;
/// Half of the files of a bridge are for connections. So many of these are for the caller and for those that send nothing.
const RESERVE: usize = 100;
/// A user may have a quarter of all connections.
const USERS: usize = 5;
const STRANGERS: usize = 3_000;
/// Calls that are timed meanwhile.
const CALLS: usize = 500;

pub(crate) async fn measure(options: &Options, table: &mut Table) -> io::Result<()> {
    let bridge = Bridge::start(options, USERS, &[]).await?;
    let hard = getrlimit(Resource::Nofile).maximum;
    let may_open = hard.and_then(|files| usize::try_from(files / 2).ok()).unwrap_or(usize::MAX);
    let connections = CONNECTIONS.min(may_open.saturating_sub(RESERVE));
    // After the bridge has started: it raises its own.
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    let mut caller = bridge.client(0).await?;
    caller.open().await?;
    caller.run("1", "main").await?;
    let (middle, late) = calls(&mut caller).await?;
    let alone = format!("{} / {} ms", ms(middle), ms(late));
    let before = bridge.memory();
    let began = Instant::now();
    let mut waiting = Vec::new();
    for number in 0..connections {
        let mut client = bridge.client(number).await?;
        client.discover().await?;
        waiting.push(client);
    }
    let opening = began.elapsed().as_secs_f64();
    let each = (bridge.memory() - before) / connections as f64;
    let (middle, late) = calls(&mut caller).await?;
    let open = count_open(&waiting);
    let text = format!("{open} stay open, {each:.1} KB each; opened in {opening:.0} s");
    let limit = hard.map_or_else(|| "no limit of".to_owned(), |files| format!("a limit of {files}"));
    table.row(&format!("{connections} connections of {USERS} users that wait, {limit} files"), &text, "all");
    let text = format!("{} / {} ms; {alone} before", ms(middle), ms(late));
    table.row("a warm call meanwhile, p50 / p99", &text, "-");
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(bridge.stranger().await?);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let half_open = count_open(&strangers);
    let kept = count_open(&waiting);
    let (middle, late) = calls(&mut caller).await?;
    let text = format!(
        "{half_open} stay open, and {kept} of those that wait; a warm call {} / {} ms",
        ms(middle),
        ms(late)
    );
    table.row(&format!("{STRANGERS} more that send nothing"), &text, "at most 1,024 of them, and all others");
    drop((waiting, strangers, caller));
    bridge.stop().await
}

async fn calls(caller: &mut Client) -> io::Result<(Duration, Duration)> {
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let began = Instant::now();
        caller.run("1 + 1", "main").await?;
        times.push(began.elapsed());
    }
    Ok(p50_p99(&mut times))
}

fn count_open(clients: &[Client]) -> usize {
    clients.iter().filter(|client| client.is_open()).count()
}
