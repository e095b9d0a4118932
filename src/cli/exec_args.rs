//! The arguments of `codebridge exec`, and those of every run of code.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::settings::OutputMode;

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The Python code to run
    #[arg(short = 'c', long = "code", value_name = "CODE", allow_hyphen_values = true)]
    pub code: Option<String>,
    /// A file with Python code and its arguments, all that follows; `-` = standard input [default: standard input]
    #[arg(value_names = ["FILE", "ARGUMENT"], num_args = 1.., trailing_var_arg = true)]
    pub words: Vec<OsString>,
    /// Refused: a run has no session that another run could go on with.
    #[arg(long, value_name = "NAME", hide = true)]
    pub session: Option<String>,
    #[command(flatten)]
    pub flags: RunFlags,
}

/// What a run of code has beside its code.
#[derive(Debug, Args)]
pub struct RunFlags {
    /// Copy a file into /workspace before the code runs; can be repeated
    #[arg(long = "in", value_name = "FILE[:NAME]")]
    pub files: Vec<OsString>,
    /// An MCP server that the code can call, or `*` for all; can be repeated
    #[arg(long = "server", value_name = "NAME")]
    pub servers: Vec<String>,
    /// Print the result at the end, in this format: compact, toon or json [default: the output as it comes]
    #[arg(long = "output", value_name = "MODE", value_parser = output_mode)]
    pub output: Option<OutputMode>,
    /// Copy displayed pictures and tables, artifacts and changed files of /workspace to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace existing files in the folder of --out
    #[arg(long, requires = "out")]
    pub force: bool,
}

fn output_mode(text: &str) -> Result<OutputMode, String> {
    OutputMode::parse(text).ok_or_else(|| format!("expected one of {}", OutputMode::NAMES.join(", ")))
}
