//! What is measured, from the command line.

use std::path::PathBuf;

use clap::Parser;

/// Measures codebridge beside the bare runtimes.
#[derive(Parser)]
pub(crate) struct Options {
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    pub(crate) program: PathBuf,
    /// The runtimes to measure; those that do not work here are said so and left out.
    #[arg(long = "runtime", default_values_t = ["crun", "runc", "podman", "docker"].map(String::from))]
    pub(crate) runtimes: Vec<String>,
    /// What the sandboxes start, for crun and runc: `host:` or `dir:PATH`.
    #[arg(long, default_value = "host:")]
    pub(crate) image: String,
    /// What the engines start.
    #[arg(long)]
    pub(crate) engine_image: Option<String>,
    /// How often each figure is taken.
    #[arg(long, default_value_t = 15)]
    pub(crate) rounds: usize,
    /// Also write the table to `bench/results/DATE.md`.
    #[arg(long)]
    pub(crate) save: bool,
}
