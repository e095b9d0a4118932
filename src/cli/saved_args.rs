//! The arguments of `codebridge saved`.

use clap::Subcommand;

use super::form::Form;

#[derive(Debug, Subcommand)]
pub enum SavedCommand {
    /// List saved functions
    Ls(Form),
    /// Print the source of a saved function
    Show {
        /// The name of the function
        #[arg(value_name = "NAME")]
        name: String,
        /// An earlier version [default: the current one]
        #[arg(long, value_name = "N")]
        version: Option<u32>,
        #[command(flatten)]
        form: Form,
    },
    /// Remove saved functions with all their versions
    Rm {
        /// Names of functions
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}
