//! The arguments of `codebridge artifact`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::form::Form;
use crate::settings::parse_time;

#[derive(Debug, Subcommand)]
pub enum ArtifactCommand {
    /// List artifacts
    Ls {
        /// List all versions
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Print an artifact, or write it to a file
    Get {
        /// The name of the artifact
        #[arg(value_name = "NAME")]
        name: String,
        /// The version [default: the latest]
        #[arg(long, value_name = "N")]
        version: Option<u32>,
        /// The file to write, or a folder; `-` = standard output
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
    /// Remove artifacts
    Rm {
        /// Names of artifacts
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Remove only this version [default: all]
        #[arg(long, value_name = "N")]
        version: Option<u32>,
        #[command(flatten)]
        form: Form,
    },
    /// Remove old versions
    Prune(PruneArgs),
    /// Copy the latest version of artifacts into a folder
    Export {
        /// The folder; it is made if it does not exist
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Names of artifacts [default: all]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Replace existing files
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub struct PruneArgs {
    /// Versions that were saved longer ago than this: `30d`, `12h`
    #[arg(long, value_name = "TIME", value_parser = age, group = "which")]
    pub older_than: Option<Duration>,
    /// All but the latest N versions of each artifact
    #[arg(long, value_name = "N", group = "which")]
    pub keep: Option<usize>,
    #[command(flatten)]
    pub form: Form,
}

/// Parses a time, also in days.
fn age(text: &str) -> Result<Duration, String> {
    let days = text.trim().strip_suffix(['d', 'D']).and_then(|days| days.parse::<u32>().ok());
    let time = days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
    time.or_else(|| parse_time(text)).ok_or_else(|| "expected a time such as 30d or 12h".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_also_in_days() {
        assert_eq!(age("2d"), Ok(Duration::from_secs(48 * 3600)));
        assert_eq!(age("12h"), Ok(Duration::from_secs(12 * 3600)));
        for wrong in ["", "d", "-1d", "soon"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
