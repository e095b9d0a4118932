//! Why a file operation failed, in words for code in the sandbox.

use std::io;

/// Returns the reason without the path of the host that some errors contain.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code).to_string(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_words_and_no_path() {
        let full = io::Error::from(rustix::io::Errno::NOSPC);
        assert_eq!(reason(&full), "No space left on device (os error 28)");
        let exhausted = io::Error::from(rustix::io::Errno::MFILE);
        assert_eq!(reason(&exhausted), "Too many open files (os error 24)");
        let with_path = io::Error::new(io::ErrorKind::StorageFull, "at '/home/user/MCPs'");
        assert_eq!(reason(&with_path), "no storage space");
    }
}
