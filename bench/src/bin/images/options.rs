//! What is measured, from the command line.

use std::path::PathBuf;

use clap::Parser;

/// Measures pulling and unpacking beside skopeo and umoci.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The image, as skopeo and codebridge both name it.
    #[arg(long)]
    pub(crate) image: String,
    /// codebridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    pub(crate) program: PathBuf,
    /// An ordinary user, `UID:GID`, who can run the program too.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// The runtime of the first call, beside podman.
    #[arg(long, default_value = "crun")]
    pub(crate) runtime: String,
    /// Where to work: a file system like the one that images are kept on.
    #[arg(long, default_value = "/var/tmp")]
    pub(crate) folder: PathBuf,
    /// How often each figure is taken.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
}
