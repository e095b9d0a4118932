//! What an artifact may be called. A name is the name of a folder, so it cannot lead out of the one of all artifacts.

use codebridge_runtimes::exec::visible_line;

use super::ArtifactError;

/// Bytes of a name: every file system takes as many, and so does the name of a downloaded file.
const LONGEST: usize = 200;
/// Characters of a wrong name in a message.
const SHOWN: usize = 60;

/// Checks a name.
pub(super) fn check(name: &str) -> Result<(), ArtifactError> {
    let why = match name {
        "" => "it is empty",
        _ if name.len() > LONGEST => "it has more than 200 bytes",
        _ if name.contains(['/', '\\']) => "it contains a slash",
        _ if name.starts_with('.') => "it starts with a dot",
        _ if name.trim() != name => "it starts or ends with a space",
        _ if visible_line(name) != name => "it contains a control or invisible character",
        _ => return Ok(()),
    };
    let mut shown: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    Err(ArtifactError::Name { name: shown, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_folder() {
        for name in ["report.csv", "Übersicht 2026.pdf", "a b", "x", &"x".repeat(200)] {
            check(name).unwrap();
        }
        for name in
            ["", ".", "..", "../x", "a/b", "a\\b", ".staging", ".x", " x", "x ", "a\nb", "a\0b", "\u{202e}x"]
        {
            assert!(check(name).is_err(), "{name:?}");
        }
        for c in ['\u{61c}', '\u{ad}', '\u{180e}', '\u{e0041}', '\u{200b}', '\u{feff}', '\u{9b}'] {
            assert!(check(&format!("a{c}b")).is_err(), "{c:?}");
        }
        let error = check(&"\n".repeat(4096)).unwrap_err().to_string();
        assert!(error.len() < 200 && !error.contains('\n'), "{error}");
    }
}
