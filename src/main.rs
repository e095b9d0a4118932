//! The `codebridge` binary.

use std::process::ExitCode;

use codebridge::settings::Environment;

fn main() -> ExitCode {
    let environment: Environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    codebridge::cli::main(std::env::args_os(), &environment)
}
