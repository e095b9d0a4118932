//! From a registry to a root filesystem, beside the tools that do it in Debian: `skopeo copy` and `umoci unpack`.
//!
//! `cargo run --release -p codebridge-bench --bin images -- --image oci-archive:slim.tar` starts a registry on loopback,
//! pushes the image into it, and takes every figure in turns. With `--user UID:GID` also as an ordinary user.

mod registry;
mod work;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Measures pulling and unpacking beside skopeo and umoci.
#[derive(Debug, Parser)]
struct Options {
    /// The image, as skopeo and codebridge both name it.
    #[arg(long)]
    image: String,
    /// codebridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    program: PathBuf,
    /// An ordinary user, `UID:GID`, who can run the program too.
    #[arg(long)]
    user: Option<String>,
    /// The runtime of the first call, beside podman.
    #[arg(long, default_value = "crun")]
    runtime: String,
    /// Where to work: a file system like the one that images are kept on.
    #[arg(long, default_value = "/var/tmp")]
    folder: PathBuf,
    /// How often each figure is taken.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

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
