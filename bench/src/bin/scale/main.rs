//! Many clients of one bridge over HTTP: how fast it is, what each of them takes, and where the limits are.
//!
//! `cargo run --release -p codebridge-bench --bin scale -- load idle turnover waiting engines --image dir:/path`: each part
//! takes less than two minutes.

mod bridge;
mod engines;
mod floor;
mod http;
mod idle;
mod load;
mod options;
mod table;
mod turnover;
mod waiting;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use codebridge_bench::machine;
use options::{Options, Part};
use table::Table;

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
            Part::Engines => engines::measure(options, &mut table).await?,
        }
    }
    Ok(table.0)
}
