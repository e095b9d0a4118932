//! The commands of `packages`.

use std::path::PathBuf;

use clap::Subcommand;

use super::form::Form;

#[derive(Debug, Subcommand)]
pub enum PackagesCommand {
    /// List the installed sets of packages
    Ls(Form),
    /// Download packages for the image, so that sessions have them at once and without a network
    Add {
        /// Packages, such as `pandas` or `httpx>=0.27`
        #[arg(value_name = "PACKAGE", required = true)]
        packages: Vec<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Remove sets; sessions that use them keep their packages
    Rm {
        /// Ids or their prefixes, or names of packages
        #[arg(value_name = "SET", required = true)]
        sets: Vec<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Remove sets that were not used for 30 days
    Prune {
        /// Remove all sets
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Write the versions and hashes of packages and of all that they need, for `--packages locked:FILE`
    Lock {
        /// Packages, such as `pandas` or `httpx>=0.27`
        #[arg(value_name = "PACKAGE", required = true)]
        packages: Vec<String>,
        /// The file to write [default: standard output]
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace a file that is no lock file
        #[arg(long, requires = "output")]
        force: bool,
    },
}
