//! What was probably meant by a command line that is none.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::help;

/// Returns what to type, for words that are no command and mean something elsewhere.
pub(super) fn hint(error: &Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand)?;
            if help::find(word).is_some() {
                return Some(format!("`codebridge help {word}` shows this topic"));
            }
            let is_file = Path::new(word).extension().is_some_and(|extension| extension == "py");
            let is_file = is_file || word == "-" || word.contains('/');
            is_file.then(|| format!("to run a file, use `codebridge exec {word}`"))
        }
        ErrorKind::UnknownArgument => match context(ContextKind::InvalidArg)? {
            "-c" | "--code" if is_of_program(error) => {
                Some("to run code, use `codebridge exec -c CODE`".to_owned())
            }
            "-m" => Some(
                "to run a module, use `codebridge exec -c \"import runpy; runpy.run_module('MODULE', run_name='__main__')\"`"
                    .to_owned(),
            ),
            word if word.ends_with(".py") => Some(format!("to run a file, use `codebridge exec {word}`")),
            "--output-mode" => Some("`exec` prints another format with `--output`".to_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether the words before the mistake name no command.
fn is_of_program(error: &Error) -> bool {
    match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string().contains("codebridge [OPTIONS] [COMMAND]"),
        _ => false,
    }
}
