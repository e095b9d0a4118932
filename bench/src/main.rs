//! Benchmarks of codebridge beside the bare runtimes, all in one run on one machine.
//!
//! `cargo run --release -p codebridge-bench -- --image dir:/path`; the table goes to standard output, and to a file with
//! `--save`.

mod figures;
mod options;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use codebridge_bench::machine;
use options::Options;

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
