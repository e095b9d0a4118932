//! The arguments of `codebridge saved`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::form::Form;

#[derive(Debug, Args)]
pub struct SavedArgs {
    /// The functions of this user of `serve --http`
    #[arg(long, value_name = "USER", global = true)]
    pub principal: Option<String>,
    #[command(subcommand)]
    pub command: SavedCommand,
}

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
    /// Write a saved function as a skill that others can import: a folder with SKILL.md and the source
    Export {
        /// The name of the function
        #[arg(value_name = "NAME")]
        name: String,
        /// The folder in which the folder of the skill is made
        #[arg(long, value_name = "DIR", default_value = ".")]
        to: PathBuf,
        /// Replace existing files
        #[arg(long)]
        force: bool,
    },
    /// Show the source of somebody else's function, and save it if you approve
    Import {
        /// The folder of a skill, or a file with one function
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Run the examples of saved functions, each in a sandbox of its own
    Test {
        /// Names of functions [default: all that have an example]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
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
