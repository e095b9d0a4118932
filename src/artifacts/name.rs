//! What an artifact may be called. A name is the name of a folder, so it cannot lead out of the one of all artifacts.

use super::ArtifactError;

/// Bytes of a name: every file system takes as many, and so does the name of a downloaded file.
const LONGEST: usize = 200;
/// Characters of a wrong name in a message.
const SHOWN: usize = 60;

/// Checks a name.
pub(super) fn check(name: &str) -> Result<(), ArtifactError> {
    let is_invisible = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let why = match name {
        "" => "it is empty",
        _ if name.len() > LONGEST => "it has more than 200 bytes",
        _ if name.contains(['/', '\\']) => "it contains a slash",
        _ if name.starts_with('.') => "it starts with a dot",
        _ if name.trim() != name => "it starts or ends with a space",
        _ if name.contains(is_invisible) => "it contains a control character",
        _ => return Ok(()),
    };
    let mut shown: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    Err(ArtifactError::Name { name: shown, why })
}

/// Returns a size for people: `1.2 KiB`.
pub fn shown_size(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    // What would be rounded to 1024 belongs to the next unit.
    while value >= 1023.95 && unit < 4 {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, ["B", "KiB", "MiB", "GiB", "TiB"][unit]) {
        (0, _) => format!("{bytes} B"),
        (_, name) if value >= 99.95 => format!("{value:.0} {name}"),
        (_, name) => format!("{value:.1} {name}"),
    }
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
        let error = check(&"\n".repeat(4096)).unwrap_err().to_string();
        assert!(error.len() < 200 && !error.contains('\n'), "{error}");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1229, "1.2 KiB"),
            (23 << 10, "23.0 KiB"),
            (500 << 10, "500 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1 << 30, "1.0 GiB"),
            (5 << 50, "5120 TiB"),
        ] {
            assert_eq!(shown_size(bytes), text);
        }
    }
}
