//! What commands say on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use codebridge_runtimes::exec::visible;

/// Prints a line. Servers, files and engines may have written parts of it. If it cannot be written, nobody reads it.
pub(super) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", visible(&text.to_string()));
}
