//! The figures, each with its bound.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use codebridge_bench::bare::{Bare, IDLE};
use codebridge_bench::client::Bridge;
use codebridge_bench::machine;
use codebridge_runtimes::{RootFs, RuntimeKind, exec};

use crate::options::Options;

/// Warm calls for the median and the 99th percentile.
const WARM_CALLS: usize = 1000;
/// Bytes of the throughput figure.
const PRINTED: usize = 10_000_000;

struct Table(String);

impl Table {
    fn row(&mut self, figure: &str, runtime: &str, measured: &str, bound: &str) {
        let _ = writeln!(self.0, "| {figure} | {runtime} | {measured} | {bound} |");
    }
}

/// Takes every figure on every runtime that works here.
pub(crate) async fn measure(options: &Options) -> io::Result<String> {
    let mut table =
        Table(format!("{}| figure | runtime | measured | bound |\n|---|---|---|---|\n", machine::header("")));
    startup(options, &mut table).await?;
    for name in &options.runtimes {
        let kind = RuntimeKind::of_program(name)
            .ok_or_else(|| io::Error::other(format!("'{name}' is no runtime")))?;
        let Some(program) = exec::find_program(Path::new(name)) else {
            table.row("-", name, "not installed", "-");
            continue;
        };
        let engine = matches!(kind, RuntimeKind::Podman | RuntimeKind::Docker);
        let image = options.engine_image.clone().filter(|_| engine).unwrap_or_else(|| options.image.clone());
        if let Err(error) = runtime(options, &mut table, kind, program, &image).await {
            let text = error.to_string().replace(['\n', '|'], " ");
            table.row("-", name, &format!("failed: {}", text.chars().take(200).collect::<String>()), "-");
        }
    }
    Ok(table.0)
}

async fn runtime(
    options: &Options,
    table: &mut Table,
    kind: RuntimeKind,
    program: PathBuf,
    image: &str,
) -> io::Result<()> {
    let name = kind.program_name();
    let args: Vec<String> = ["serve", "--runtime", name, "--image", image].map(String::from).to_vec();
    first_call(options, table, kind, program, image, &args).await?;
    let mut bridge = Bridge::start(&options.program, &args).await?;
    bridge.run("1+1").await?;
    warm(table, name, &mut bridge).await?;
    throughput(table, name, &mut bridge).await?;
    parallel(options, table, name, &mut bridge).await?;
    bridge.stop().await
}

/// Start to `initialize`, idle memory, size on disk.
async fn startup(options: &Options, table: &mut Table) -> io::Result<()> {
    let mut times = Vec::new();
    let mut memory = 0;
    for _ in 0..options.rounds.max(5) * 2 {
        let bridge = Bridge::start(&options.program, &["serve".to_string()]).await?;
        times.push(bridge.startup);
        memory = bridge.status("VmRSS").unwrap_or(0);
        bridge.stop().await?;
    }
    table.row("start to the answer of `initialize`", "-", &median_ms(&mut times), "<= 5 ms");
    table.row("idle memory", "-", &format!("{:.1} MB", memory as f64 / 1000.0), "<= 15 MB");
    let size = std::fs::metadata(&options.program)?.len();
    table.row("binary", "-", &format!("{:.1} MB", size as f64 / 1e6), "<= 17 MB");
    Ok(())
}

/// The first call of a fresh bridge over the bare runtime, taken in turns.
async fn first_call(
    options: &Options,
    table: &mut Table,
    kind: RuntimeKind,
    program: PathBuf,
    image: &str,
    args: &[String],
) -> io::Result<()> {
    let root = match image.strip_prefix("dir:") {
        Some(path) => RootFs::Directory(path.into()),
        None if image == "host:" => RootFs::Host,
        None => RootFs::Image(image.to_string()),
    };
    let bare = Bare::new(kind, program, root)?;
    // The choice of the runtime is remembered on disk from here on.
    let mut first = Bridge::start(&options.program, args).await?;
    let searching = first.run("1+1").await?;
    first.stop().await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        theirs.push(bare.run().await?);
        let mut bridge = Bridge::start(&options.program, args).await?;
        tokio::time::sleep(IDLE).await;
        ours.push(bridge.run("1+1").await?);
        bridge.stop().await?;
    }
    bare.close()?;
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let bound = if matches!(kind, RuntimeKind::Crun | RuntimeKind::Runc) { "<= 1.6 x" } else { "<= 1.3 x" };
    let text = format!("{ratio:.2} x ({} over {}; with a search {})", ms(ours), ms(theirs), ms(searching));
    table.row("first call over the bare run", kind.program_name(), &text, bound);
    Ok(())
}

async fn warm(table: &mut Table, name: &str, bridge: &mut Bridge) -> io::Result<()> {
    let mut times = Vec::with_capacity(WARM_CALLS);
    for _ in 0..WARM_CALLS {
        times.push(bridge.run("1+1").await?);
    }
    times.sort();
    let text = format!("{} / {}", ms(times[WARM_CALLS / 2]), ms(times[WARM_CALLS * 99 / 100]));
    table.row("warm `1+1`, p50 / p99", name, &text, "<= 1 ms / <= 5 ms");
    let mut tens = Vec::new();
    for round in 0..20 {
        let started = Instant::now();
        for cell in 0..10 {
            bridge.run(&format!("x{cell} = {round}\nsum(range(x{cell} + 100))")).await?;
        }
        tens.push(started.elapsed());
    }
    table.row("ten short cells", name, &median_ms(&mut tens), "<= 15 ms");
    Ok(())
}

async fn throughput(table: &mut Table, name: &str, bridge: &mut Bridge) -> io::Result<()> {
    let code = format!("print('x' * {})", PRINTED - 1);
    bridge.run("print('warm' * 10_000)").await?;
    let before = bridge.status("VmHWM").unwrap_or(0);
    let mut times = Vec::new();
    for _ in 0..7 {
        times.push(bridge.run(&code).await?);
    }
    let growth = bridge.status("VmHWM").unwrap_or(0).saturating_sub(before);
    let speed = PRINTED as f64 / 1e6 / median(&mut times).as_secs_f64();
    table.row("`print` of 10 MB", name, &format!("{speed:.0} MB/s"), ">= 50 MB/s");
    table.row("host memory for it", name, &format!("+{:.1} MB", growth as f64 / 1000.0), "<= 16 MB");
    Ok(())
}

async fn parallel(options: &Options, table: &mut Table, name: &str, bridge: &mut Bridge) -> io::Result<()> {
    let sessions: Vec<String> =
        (0..8).map(|n| if n == 0 { "main".into() } else { format!("s{n}") }).collect();
    let code = "import time; time.sleep(0.2)";
    let started = Instant::now();
    bridge.run_each(code, &sessions).await?;
    let cold = started.elapsed();
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        let started = Instant::now();
        bridge.run_each(code, &sessions).await?;
        times.push(started.elapsed());
    }
    let text = format!("{} ({} when seven of them had to start)", median_ms(&mut times), ms(cold));
    table.row("8 sessions sleeping 0.2 s at once", name, &text, "<= 0.5 s");
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn median_ms(times: &mut [Duration]) -> String {
    ms(median(times))
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
