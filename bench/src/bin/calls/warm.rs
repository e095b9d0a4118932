//! Calls of a server that runs: directly, and through the pool.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codebridge::audit::Audit;
use codebridge::policy::Policy;
use codebridge::reaper::Reaper;
use codebridge::settings::Environment;
use codebridge::upstream::discovery::Surroundings;
use codebridge::upstream::{CallOptions, Limits, RawArguments, Upstream};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::direct::Direct;
use crate::server::first_tool;
use crate::table::{Table, at, home, micros, millis};

/// Calls of one way before it is the other's turn.
const TURN: usize = 50;
/// Tools of the server.
pub(crate) const TOOLS: usize = 50;
/// Calls at once.
const AT_ONCE: usize = 200;
pub(crate) const SERVER: &str = "server-0";
/// What the tool is called with.
pub(crate) const TEXT: &str = "as long as arguments of tools are, give or take a few words";

/// The servers of a home, through the library of the bridge.
pub(crate) fn upstream(home: &Path, policy: Policy, audit: Audit) -> Upstream {
    let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let surroundings = Surroundings {
        home: Some(home.into()),
        cwd: home.into(),
        environment: variables.collect::<Environment>().into(),
        state_dir: home.join("MCPs"),
        ..Surroundings::default()
    };
    Upstream::with(
        surroundings,
        Limits::default(),
        Reaper::of(None),
        Arc::new(policy),
        Default::default(),
        audit,
    )
}

pub(crate) async fn measure(calls: usize, table: &mut Table) -> io::Result<()> {
    let home = home(1, TOOLS)?;
    let mut direct = Direct::start(TOOLS).await?;
    let bridge = upstream(home.path(), Policy::none(), Audit::off());
    let tool = first_tool();
    let text = TEXT;
    let arguments = RawArguments::new(json!({ "text": text }).to_string()).map_err(io::Error::other)?;
    let cancel = CancellationToken::new();
    let call = || bridge.call(SERVER, &tool, arguments.clone(), CallOptions::new(&cancel));
    // Both are warm before the clock runs.
    for _ in 0..TURN {
        direct.call(&tool, text).await?;
        call().await.map_err(io::Error::other)?;
    }
    let (mut theirs, mut ours) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
    while ours.len() < calls {
        for _ in 0..TURN {
            theirs.push(timed(direct.call(&tool, text)).await?);
        }
        for _ in 0..TURN {
            ours.push(timed(async { call().await.map_err(io::Error::other) }).await?);
        }
    }
    let (their_p50, our_p50) = (at(&mut theirs, 0.5), at(&mut ours, 0.5));
    let both = |p50, p99| format!("{} / {}", micros(p50), micros(p99));
    table.row("a call of a tool by a client, p50 / p99", &both(their_p50, at(&mut theirs, 0.99)), "-");
    table.row("the same through the pool, p50 / p99", &both(our_p50, at(&mut ours, 0.99)), "-");
    table.row(
        "the pool adds, p50",
        &micros(our_p50.saturating_sub(their_p50)),
        "<= 250 µs, with the sandbox",
    );

    let mut rounds = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (bridge, tool, arguments) = (bridge.clone(), tool.clone(), arguments.clone());
                tokio::spawn(async move {
                    bridge.call(SERVER, &tool, arguments, CallOptions::new(&CancellationToken::new())).await
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        }
        rounds.push(started.elapsed());
    }
    table.row(&format!("{AT_ONCE} calls at once, p50"), &millis(at(&mut rounds, 0.5)), "-");
    bridge.shutdown().await;
    direct.stop().await
}

async fn timed<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<Duration> {
    let started = Instant::now();
    work.await?;
    Ok(started.elapsed())
}
