//! The arguments of `codebridge policy`.

use std::path::PathBuf;

use clap::Subcommand;

use super::form::Form;

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Write a policy to start with: tools that only read are allowed, you are asked about the others
    Init {
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
    /// Say what the policy decides about a call, and which rule does; without a tool, whether the policy is in order
    Check {
        /// The tool
        #[arg(value_name = "SERVER.TOOL")]
        tool: Option<String>,
        /// The arguments, a JSON object
        #[arg(value_name = "JSON", default_value = "{}")]
        arguments: String,
        /// The session that calls it
        #[arg(long, value_name = "NAME")]
        session: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Compare the policy with what you expect
    Test {
        /// A file with `[[expect]]` tables
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Show how the tools of a server have changed, and accept them
    Accept {
        /// The server
        #[arg(value_name = "SERVER")]
        server: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}
