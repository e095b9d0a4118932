//! The arguments of `codebridge audit` and `codebridge replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::artifact_args::age;
use super::form::Form;

/// Shows the audit log
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Go on printing lines as they come
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Only the lines of a run: BRIDGE-NUMBER, or BRIDGE for all of its runs
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// Only lines that are not older than this: `1h`, `30m`, `7d`
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub since: Option<Duration>,
    /// Print the lines as they are in the log: one JSON object each
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Find lines that were changed, removed or cut off
    Verify {
        /// The output of an earlier `verify --json`, kept elsewhere: also finds a log that was rewritten
        #[arg(long, value_name = "FILE")]
        heads: Option<PathBuf>,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The run, as `codebridge audit` names it: BRIDGE-NUMBER
    #[arg(value_name = "RUN")]
    pub run: String,
    #[command(flatten)]
    pub form: Form,
}
