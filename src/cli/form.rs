//! The form in which a command prints its result.

use clap::Args;

#[derive(Debug, Args)]
pub struct Form {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
