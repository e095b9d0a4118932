//! The arguments of `codebridge workflow`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::exec_args::RunFlags;
use super::form::Form;

#[derive(Debug, Subcommand)]
pub enum WorkflowCommand {
    /// Run a file, and journal the results of its steps
    Run(WorkflowRunArgs),
    /// List workflows
    Ls(Form),
    /// Show the steps of a workflow
    Show {
        /// The workflow, as the list names it
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        form: Form,
    },
    /// Stop a workflow for good: it cannot be resumed
    Cancel {
        /// The workflow, as the list names it
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct WorkflowRunArgs {
    /// A file with Python code and its arguments; those that begin with `-` follow `--`
    #[arg(value_names = ["FILE", "ARGUMENT"], num_args = 1.., required = true)]
    pub words: Vec<OsString>,
    /// Continue a workflow after its last finished step, with the arguments of its first run
    #[arg(long, value_name = "ID")]
    pub resume: Option<String>,
    #[command(flatten)]
    pub flags: RunFlags,
}
