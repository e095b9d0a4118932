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

/// Parses a time with a unit, also in days and weeks. A bare number would be seconds where days are meant.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let long = |unit: [char; 2], days: u64| {
        let number = text.strip_suffix(unit)?.parse::<u32>().ok()?;
        Some(Duration::from_secs(u64::from(number) * days * 24 * 3600))
    };
    let time = match text.chars().last() {
        Some('w' | 'W') => long(['w', 'W'], 7),
        Some('d' | 'D') => long(['d', 'D'], 1),
        Some(unit) if unit.is_ascii_alphabetic() => parse_time(text),
        _ => None,
    };
    time.ok_or_else(|| "expected a time such as 30d or 12h".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit_and_are_also_in_days_and_weeks() {
        assert_eq!(age("2d"), Ok(Duration::from_secs(48 * 3600)));
        assert_eq!(age("12h"), Ok(Duration::from_secs(12 * 3600)));
        assert_eq!(age("2w"), Ok(Duration::from_secs(14 * 24 * 3600)));
        assert_eq!(age("30s"), Ok(Duration::from_secs(30)));
        for wrong in ["", "d", "-1d", "soon", "30", "w"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
