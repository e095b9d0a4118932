//! What it costs to bring files and packages into a sandbox, and pictures and files out of it.
//!
//! `cargo run --release -p codebridge-bench --bin work -- --sandbox runc=oci-archive:data.tar`: the image needs matplotlib.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use codebridge_bench::client::Bridge;
use codebridge_bench::machine;

/// Taken in turns.
const ROUNDS: usize = 25;
const WARM_CALLS: usize = 1000;
const GIBIBYTE: u64 = 1 << 30;

const FIGURE: &str = "import io, matplotlib.pyplot as plt\nplt.close('all'); plt.plot([1, 4, 9])\n";
const SAVEFIG: &str = "plt.savefig(io.BytesIO(), format='png'); None";
const SHOW: &str = "plt.show()";
const SAVE: &str =
    "piece = bytes(1 << 20)\nruntime.save_artifact((piece for _ in range(1024)), 'large'); None";
const COPY: &str = "piece = bytes(1 << 20)\nwith open('/dev/null', 'wb') as sink:\n    for _ in range(1024): sink.write(piece)";
const INSTALL: &str = "runtime.install('seaborn'); None";
const IMPORT: &str =
    "import time; start = time.perf_counter(); import matplotlib.pyplot; print(time.perf_counter() - start)";

#[derive(Parser)]
struct Options {
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    program: PathBuf,
    /// Where code runs: `runc=oci-archive:data.tar`; an image without matplotlib for packages comes after a comma.
    #[arg(long, value_name = "RUNTIME=IMAGE[,PLAIN]", required = true)]
    sandbox: Vec<String>,
    /// Also write the table to `bench/results/DATE-work.md`.
    #[arg(long)]
    save: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = measure(&options).await.and_then(|table| {
        io::stdout().write_all(table.as_bytes())?;
        if options.save { machine::save("-work", &table) } else { Ok(()) }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "work: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> io::Result<String> {
    let header = machine::header(": work in, results out");
    let mut table = format!("{header}| figure | runtime | measured | bound |\n|---|---|---|---|\n");
    for sandbox in &options.sandbox {
        let (runtime, images) =
            sandbox.split_once('=').ok_or_else(|| io::Error::other("RUNTIME=IMAGE is wanted"))?;
        let (image, plain) = images.split_once(',').unwrap_or((images, images));
        let home = tempfile::tempdir()?;
        let start = |image: &str, more: &[&str]| {
            let mut args = vec!["serve", "--runtime", runtime, "--image", image, "--memory", "1g"];
            let state = home.path().to_string_lossy().into_owned();
            args.extend(["--timeout", "110", "--artifacts-limit", "8g", "--state-dir", &state]);
            args.extend(more);
            let args: Vec<String> = args.into_iter().map(String::from).collect();
            async move { Bridge::start(&options.program, &args).await }
        };
        let mut row = |figure: &str, measured: String, bound: &str| {
            table.push_str(&format!("| {figure} | {runtime} | {measured} | {bound} |\n"));
        };
        let mut bridge = start(image, &[]).await?;
        row("`plt.show()` to the client over `savefig`", plots(&mut bridge).await?, "<= +30 ms");
        let (speed, memory) = artifact(&mut bridge).await?;
        row("1 GiB to an artifact", speed, ">= 200 MB/s");
        row("memory of the bridge for it", memory, "flat");
        row(
            "`import matplotlib.pyplot` of the image",
            first_import(bridge, start(image, &[]).await?).await?,
            "<= 500 ms",
        );
        let (install, import) = install(
            start(plain, &["--packages", "allow"]).await?,
            start(plain, &["--packages", "allow"]).await?,
        )
        .await?;
        row("install of seaborn from a warm store", install, "<= 300 ms");
        row("`import matplotlib.pyplot` of it", import, "<= 500 ms");
        let shared = home.path().to_string_lossy().into_owned() + ":home";
        let more = start(plain, &["--packages", "allow", "--share", &shared, "--share-anyway"]).await?;
        row(
            "warm `1+1` with a share and packages over without",
            warm(start(plain, &[]).await?, more).await?,
            "1.0 x",
        );
    }
    Ok(table)
}

/// Draws a figure and saves it, or shows it, in turns.
async fn plots(bridge: &mut Bridge) -> io::Result<String> {
    let (mut saved, mut shown) = (Vec::new(), Vec::new());
    bridge.run(&format!("{FIGURE}{SHOW}")).await?;
    for _ in 0..ROUNDS {
        saved.push(bridge.run(&format!("{FIGURE}{SAVEFIG}")).await?);
        shown.push(bridge.run(&format!("{FIGURE}{SHOW}")).await?);
    }
    let (saved, shown) = (median(&mut saved), median(&mut shown));
    Ok(format!("{:+.1} ms ({} over {})", millis(shown) - millis(saved), ms(shown), ms(saved)))
}

/// Moves a gibibyte out, beside what the code needs to make it.
async fn artifact(bridge: &mut Bridge) -> io::Result<(String, String)> {
    bridge.run("runtime.save_artifact(b'x', 'small'); None").await?;
    let before = bridge.status("VmHWM").unwrap_or(0);
    let made = bridge.run(COPY).await?;
    let (mut times, mut growth) = (Vec::new(), 0);
    for _ in 0..3 {
        times.push(bridge.run(SAVE).await?);
        growth = bridge.status("VmHWM").unwrap_or(0).saturating_sub(before);
    }
    let time = median(&mut times);
    let speed = GIBIBYTE as f64 / 1e6 / time.as_secs_f64();
    Ok((
        format!("{speed:.0} MB/s ({:.1} s; {:.1} s to make it)", time.as_secs_f64(), made.as_secs_f64()),
        format!("+{:.1} MB", growth as f64 / 1000.0),
    ))
}

/// The first import in a fresh session, as the code measures it.
async fn first_import(before: Bridge, mut bridge: Bridge) -> io::Result<String> {
    before.stop().await?;
    let mut times = Vec::new();
    for round in 0..5 {
        times.push(import_in(&mut bridge, &format!("import-{round}")).await?);
    }
    bridge.stop().await?;
    Ok(ms(median(&mut times)))
}

async fn import_in(bridge: &mut Bridge, session: &str) -> io::Result<Duration> {
    let results = bridge.run_each(IMPORT, &[session.to_owned()]).await?;
    let text = results[0]["content"][0]["text"].as_str().unwrap_or_default();
    let seconds = text.trim().parse().map_err(|_| io::Error::other(format!("no time: {text}")))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Installs into fresh sessions, once from the index and then from the store.
async fn install(mut first: Bridge, mut bridge: Bridge) -> io::Result<(String, String)> {
    first.run(INSTALL).await?;
    first.stop().await?;
    let (mut installs, mut imports) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let session = [format!("install-{round}")];
        bridge.run_each("1+1", &session).await?;
        let started = Instant::now();
        bridge.run_each(INSTALL, &session).await?;
        installs.push(started.elapsed());
        imports.push(import_in(&mut bridge, &session[0]).await?);
    }
    bridge.stop().await?;
    Ok((ms(median(&mut installs)), ms(median(&mut imports))))
}

/// Warm calls of two bridges, in turns.
async fn warm(mut plain: Bridge, mut more: Bridge) -> io::Result<String> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    plain.run("1+1").await?;
    more.run("1+1").await?;
    for _ in 0..WARM_CALLS {
        theirs.push(plain.run("1+1").await?);
        ours.push(more.run("1+1").await?);
    }
    plain.stop().await?;
    more.stop().await?;
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    Ok(format!("{:.2} x ({} over {})", ours.as_secs_f64() / theirs.as_secs_f64(), ms(ours), ms(theirs)))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", millis(time))
}
