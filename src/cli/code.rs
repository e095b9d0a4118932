//! Where the code of `exec` comes from.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use super::ExecArgs;

/// Why there is no code to run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodeError {
    #[error("no code: expected FILE, -c CODE, or code on standard input")]
    None,
    #[error("failed to read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("failed to read code from standard input: {0}")]
    Input(#[source] io::Error),
}

/// Reads the code that the arguments name.
pub(super) fn read(args: &ExecArgs) -> Result<String, CodeError> {
    if let Some(code) = &args.code {
        return Ok(code.clone());
    }
    match &args.file {
        Some(path) if path != Path::new("-") => {
            std::fs::read_to_string(path).map_err(|source| CodeError::File { path: path.clone(), source })
        }
        None if io::stdin().is_terminal() => Err(CodeError::None),
        _ => {
            let mut code = String::new();
            io::stdin().read_to_string(&mut code).map_err(CodeError::Input)?;
            Ok(code)
        }
    }
}
