//! Many clients of one bridge over HTTP: how fast it is, what each of them takes, and where the limits are.
//!
//! `cargo run --release -p codebridge-bench --bin scale -- load idle turnover waiting --image dir:/path`: each part takes less
//! than two minutes.

mod bridge;
mod floor;
mod http;
mod idle;
mod load;
mod turnover;
mod waiting;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use codebridge_bench::machine;

#[derive(Parser)]
struct Options {
    /// What is measured; all of it if nothing is named.
    parts: Vec<Part>,
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    program: PathBuf,
    /// The runtime: crun or runc.
    #[arg(long, default_value = "crun")]
    runtime: String,
    /// What the sandboxes start: `host:` or `dir:PATH`.
    #[arg(long, default_value = "host:")]
    image: String,
    /// Clients, each with a session.
    #[arg(long, default_value_t = 100)]
    clients: usize,
    /// Also write the table to `bench/results/DATE-scale.md`.
    #[arg(long)]
    save: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// Warm calls of one client and of all at once, beside the same frames without MCP.
    Load,
    /// Memory of a session that does nothing.
    Idle,
    /// A thousand sessions opened and closed.
    Turnover,
    /// Ten thousand connections that wait.
    Waiting,
}

/// The rows of the result.
struct Table(String);

impl Table {
    fn row(&mut self, figure: &str, measured: &str, bound: &str) {
        let _ = writeln!(self.0, "| {figure} | {measured} | {bound} |");
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = measure(&options).await.and_then(|table| {
        io::stdout().write_all(table.as_bytes())?;
        if options.save { machine::save("-scale", &table) } else { Ok(()) }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "scale: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> io::Result<String> {
    let header = machine::header(": many clients of one bridge over HTTP");
    let mut table = Table(format!("{header}| figure | measured | bound |\n|---|---|---|\n"));
    let parts = if options.parts.is_empty() { Part::value_variants() } else { &options.parts };
    for part in parts {
        match part {
            Part::Load => load::measure(options, &mut table).await?,
            Part::Idle => idle::measure(options, &mut table).await?,
            Part::Turnover => turnover::measure(options, &mut table).await?,
            Part::Waiting => waiting::measure(options, &mut table).await?,
        }
    }
    Ok(table.0)
}

/// Returns the times at the middle and at the 99th of a hundred.
fn p50_p99(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.99))
}

fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
