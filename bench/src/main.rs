//! Benchmarks of codebridge beside the bare runtimes, all in one run on one machine.
//!
//! `cargo run --release -p codebridge-bench -- --image dir:/path`; the table goes to standard output, and to a file with
//! `--save`.

mod bare;
mod client;
mod figures;
mod machine;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Measures codebridge beside the bare runtimes.
#[derive(Parser)]
struct Options {
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    program: PathBuf,
    /// The runtimes to measure; those that do not work here are said so and left out.
    #[arg(long = "runtime", default_values_t = ["crun", "runc", "podman", "docker"].map(String::from))]
    runtimes: Vec<String>,
    /// What the sandboxes start, for crun and runc: `host:` or `dir:PATH`.
    #[arg(long, default_value = "host:")]
    image: String,
    /// What the engines start.
    #[arg(long)]
    engine_image: Option<String>,
    /// How often each figure is taken.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Also write the table to `bench/results/DATE.md`.
    #[arg(long)]
    save: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let measured = figures::measure(&options).await;
    let written = measured.and_then(|table| {
        io::stdout().write_all(table.as_bytes())?;
        if options.save { machine::save("", &table) } else { Ok(()) }
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}
