//! From a registry to a root filesystem, beside the tools that do it in Debian: `skopeo copy` and `umoci unpack`.
//!
//! `cargo run --release -p codebridge-bench --bin images -- --image oci-archive:slim.tar` starts a registry on loopback,
//! pushes the image into it, and takes every figure in turns. With `--user UID:GID` also as an ordinary user.

mod options;
mod registry;
mod work;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let measured = work::measure(&options).await;
    let written = measured.and_then(|table| io::stdout().write_all(table.as_bytes()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}
