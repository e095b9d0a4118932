//! What commands say on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use codebridge_runtimes::exec::visible;

/// Prints a line. Servers, files and engines may have written parts of it. If it cannot be written, nobody reads it.
pub(super) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", plain(&text.to_string()));
}

/// Returns a text for standard error: without control characters, and without the numbers that Rust adds to errors of the system.
pub(super) fn plain(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut parts = text.split(NUMBER);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')').filter(|_| rest.len() < part.len()) {
            Some(rest) => plain.push_str(rest),
            None => {
                plain.push_str(NUMBER);
                plain.push_str(part);
            }
        }
    }
    visible(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(
            plain(&format!("could not read x: {error}; y: {error}.")),
            "could not read x: No such file or directory; y: No such file or directory."
        );
        for text in ["a (os error x) b", "a (os error ) b", "a (os error 2"] {
            assert_eq!(plain(text), text);
        }
    }
}
