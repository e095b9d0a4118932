//! What the bridge adds to a call of a tool, and how soon it knows 10,000 of them.
//!
//! `cargo run --release -p codebridge-bench --bin calls` takes every figure in one run: a client of our own calls a server
//! directly and through the pool, in turns; then bridges that have just started search what many servers offer.

mod cold;
mod direct;
mod governed;
mod sandbox;
mod server;
mod table;
mod warm;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use codebridge_bench::machine;
use table::Table;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    program: PathBuf,
    /// How often a tool is called each way.
    #[arg(long, default_value_t = 4_000)]
    calls: usize,
    /// Where code runs that makes calls, repeated: `crun=dir:/path/to/a/root`, `podman=python:3.14-slim`.
    #[arg(long, value_name = "RUNTIME=IMAGE", value_parser = place)]
    sandbox: Vec<sandbox::Place>,
    /// Also write the table to `bench/results/DATE-calls.md`.
    #[arg(long)]
    save: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Be a server with so many tools; it is started by the other end.
    Server {
        /// How many.
        tools: usize,
        /// What makes them others than those of another server.
        seed: usize,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.command {
        Some(Command::Server { tools, seed }) => server::serve(tools, seed),
        None => measure(&options).and_then(|table| {
            io::stdout().write_all(table.as_bytes())?;
            if options.save { machine::save("-calls", &table) } else { Ok(()) }
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "calls: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> io::Result<String> {
    let header = machine::header(": calls of tools, and knowing many of them");
    let mut table = Table(format!("{header}| figure | measured | bound |\n|---|---|---|\n"));
    // As many threads as the bridge has.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        warm::measure(options.calls, &mut table).await?;
        governed::measure(options.calls, &mut table).await?;
        for place in &options.sandbox {
            sandbox::measure(&options.program, place, options.calls, &mut table).await?;
        }
        cold::measure(&options.program, &mut table).await
    })?;
    Ok(table.0)
}

fn place(text: &str) -> Result<sandbox::Place, String> {
    let (runtime, image) = text.split_once('=').ok_or("RUNTIME=IMAGE is wanted")?;
    Ok(sandbox::Place { runtime: runtime.into(), image: image.into() })
}
