//! What commands say on standard error.

use std::fmt::Display;

use codebridge_runtimes::exec::visible;

/// Prints a line. Servers, files and engines may have written parts of it.
pub(super) fn say(text: impl Display) {
    eprintln!("{}", visible(&text.to_string()));
}
