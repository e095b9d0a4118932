//! What is measured, from the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

#[derive(Parser)]
pub(crate) struct Options {
    /// What is measured; all of it if nothing is named.
    pub(crate) parts: Vec<Part>,
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    pub(crate) program: PathBuf,
    /// The runtime: crun or runc.
    #[arg(long, default_value = "crun")]
    pub(crate) runtime: String,
    /// What the sandboxes start: `host:` or `dir:PATH`.
    #[arg(long, default_value = "host:")]
    pub(crate) image: String,
    /// The image for podman, in `engines`.
    #[arg(long, default_value = "docker.io/library/python:3.14-slim")]
    pub(crate) engine_image: String,
    /// The folder of a podman store that has this image; without it `engines` is left out.
    #[arg(long)]
    pub(crate) engine_images: Option<PathBuf>,
    /// Clients, each with a session.
    #[arg(long, default_value_t = 100)]
    pub(crate) clients: usize,
    /// Also write the table to `bench/results/DATE-scale.md`.
    #[arg(long)]
    pub(crate) save: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Part {
    /// Warm calls of one client and of all at once, beside the same frames without MCP.
    Load,
    /// Memory of a session that does nothing.
    Idle,
    /// A thousand sessions opened and closed.
    Turnover,
    /// Ten thousand connections that wait, or as many as the limit of files lets there be.
    Waiting,
    /// Sessions spread over three podman services, one of which is killed.
    Engines,
}
