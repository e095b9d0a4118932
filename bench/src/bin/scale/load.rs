//! Warm calls of one client and of many.

use std::io;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::bridge::Bridge;
use crate::floor::{self, Guest};
use crate::http::Client;
use crate::options::Options;
use crate::table::{Table, ms, p50_p99};

const CODE: &str = "1 + 1";
/// Calls of the one client.
const ALONE: usize = 1_000;
/// How long each load lasts.
const SPAN: Duration = Duration::from_secs(8);
/// Sandboxes that start at once.
const STARTS: usize = 8;

/// Who makes calls.
enum Caller {
    Client(Box<Client>),
    Guest(Box<Guest>),
}

impl Caller {
    async fn call(&mut self) -> io::Result<()> {
        match self {
            Self::Client(client) => client.run(CODE, "main").await,
            Self::Guest(guest) => guest.run(CODE).await,
        }
    }
}

/// What callers did together.
struct Load {
    callers: Vec<Caller>,
    times: Vec<Duration>,
    span: Duration,
}

impl Load {
    fn a_second(&self) -> f64 {
        self.times.len() as f64 / self.span.as_secs_f64()
    }
}

pub(crate) async fn measure(options: &Options, table: &mut Table) -> io::Result<()> {
    let clients = options.clients;
    let most = clients.to_string();
    let bridge = Bridge::start(options, clients, &["--max-sessions", "4", "--max-runs", &most]).await?;
    let mut callers = Vec::new();
    for at in (0..clients).step_by(STARTS) {
        let starting = (at..clients.min(at + STARTS)).map(|user| client(&bridge, user));
        for client in join(starting).await? {
            callers.push(Caller::Client(Box::new(client)));
        }
    }
    let mut alone = Vec::new();
    for _ in 0..ALONE {
        let began = Instant::now();
        callers[0].call().await?;
        alone.push(began.elapsed());
    }
    let (middle, late) = p50_p99(&mut alone);
    table.row("warm call of one client, p50 / p99", &format!("{} / {} ms", ms(middle), ms(late)), "-");
    let mut paced = run(callers, Some(Duration::from_secs(1))).await?;
    let (paced_middle, paced_late) = p50_p99(&mut paced.times);
    let ratio = paced_middle.as_secs_f64() / middle.as_secs_f64();
    let text = format!(
        "{} / {} ms, {ratio:.1} x one client; {:.0} calls a second",
        ms(paced_middle),
        ms(paced_late),
        paced.a_second()
    );
    table.row(&format!("the same of {clients} clients, a call a second each"), &text, "-");
    let mut callers = paced.callers;
    for count in [1, 2, 4, 16, clients] {
        let idle = callers.split_off(count.min(callers.len()));
        let before = bridge.time();
        let mut load = run(callers, None).await?;
        let busy = (bridge.time() - before).as_secs_f64() / load.span.as_secs_f64();
        let (middle, late) = p50_p99(&mut load.times);
        let text = format!(
            "{:.0} a second, {} / {} ms; the bridge takes {busy:.2} of a core",
            load.a_second(),
            ms(middle),
            ms(late)
        );
        table.row(&format!("calls without a pause, {count} at once, p50 / p99"), &text, "-");
        callers = load.callers;
        callers.extend(idle);
    }
    drop(callers);
    bridge.stop().await?;
    without_mcp(options, table).await
}

async fn without_mcp(options: &Options, table: &mut Table) -> io::Result<()> {
    let bare = floor::bare(options)?;
    let mut guests = Vec::new();
    for at in (0..options.clients).step_by(STARTS) {
        let starting = (at..options.clients.min(at + STARTS)).map(|_| Guest::start(&bare));
        guests.extend(join(starting).await?);
    }
    let mut callers: Vec<Caller> = guests.into_iter().map(|guest| Caller::Guest(Box::new(guest))).collect();
    for count in [1, options.clients] {
        let idle = callers.split_off(count.min(callers.len()));
        let mut load = run(callers, None).await?;
        let (middle, late) = p50_p99(&mut load.times);
        let text = format!("{:.0} a second, {} / {} ms", load.a_second(), ms(middle), ms(late));
        table.row(&format!("the same frames without MCP, {count} at once"), &text, "-");
        callers = load.callers;
        callers.extend(idle);
    }
    for caller in callers {
        if let Caller::Guest(guest) = caller {
            guest.end().await?;
        }
    }
    bare.close()
}

/// Connects as a user, and makes the first call.
async fn client(bridge: &Bridge, user: usize) -> io::Result<Client> {
    let mut client = bridge.client(user).await?;
    client.open().await?;
    client.run(CODE, "main").await?;
    Ok(client)
}

async fn join<T>(all: impl Iterator<Item = impl Future<Output = io::Result<T>>>) -> io::Result<Vec<T>> {
    // Few at once, and each waits for processes: they are polled by turns in this task.
    let mut running: Vec<_> = all.map(Box::pin).collect();
    let mut done = Vec::new();
    while !running.is_empty() {
        let (one, at) = std::future::poll_fn(|context| {
            for (at, future) in running.iter_mut().enumerate() {
                if let std::task::Poll::Ready(one) = future.as_mut().poll(context) {
                    return std::task::Poll::Ready((one, at));
                }
            }
            std::task::Poll::Pending
        })
        .await;
        drop(running.swap_remove(at));
        done.push(one?);
    }
    Ok(done)
}

/// Has all of them call for a while, each with this pause from one call to the next.
async fn run(callers: Vec<Caller>, every: Option<Duration>) -> io::Result<Load> {
    let (began, count) = (Instant::now(), callers.len().max(1));
    let mut running = JoinSet::new();
    for (index, mut caller) in callers.into_iter().enumerate() {
        let first = every.map(|every| every.mul_f64(index as f64 / count as f64));
        running.spawn(async move {
            tokio::time::sleep(first.unwrap_or_default()).await;
            let mut times = Vec::new();
            while began.elapsed() < SPAN {
                let called = Instant::now();
                caller.call().await?;
                times.push(called.elapsed());
                if let Some(every) = every {
                    tokio::time::sleep(every.saturating_sub(called.elapsed())).await;
                }
            }
            Ok::<_, io::Error>((caller, times))
        });
    }
    let mut load = Load { callers: Vec::new(), times: Vec::new(), span: Duration::ZERO };
    while let Some(done) = running.join_next().await {
        let (caller, times) = done.map_err(io::Error::other)??;
        load.callers.push(caller);
        load.times.extend(times);
    }
    load.span = began.elapsed();
    Ok(load)
}
