//! The arguments of `codebridge gc`.

use clap::Args;

use super::form::Form;

#[derive(Debug, Args)]
pub struct GcArgs {
    /// Only show what would be removed
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do not ask before it is removed
    #[arg(short = 'y', long)]
    pub yes: bool,
    #[command(flatten)]
    pub form: Form,
}
