//! The file that says where pods run.

use std::io::Read;
use std::path::Path;

use codebridge_runtimes::PodSettings;
use codebridge_runtimes::exec::visible_line;

/// No file of settings is longer.
const LONGEST: u64 = 64 << 10;

/// Reads the file: JSON if it begins with a brace, else TOML.
///
/// # Errors
/// What is wrong, to follow the path.
pub(super) fn read(path: &Path) -> Result<PodSettings, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    parse(&text)
}

fn parse(text: &str) -> Result<PodSettings, String> {
    let settings: PodSettings = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| in_words(&error.to_string()))?,
        false => toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            in_words(&format!("{} at line {line}", error.message()))
        })?,
    };
    settings
        .validate()
        .map_err(|(field, expected)| format!("has an invalid {field}: expected {expected}"))?;
    Ok(settings)
}

fn in_words(error: &str) -> String {
    format!("cannot be used: {}", visible_line(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "runtimeClassName = \"gvisor\"\n[nodeSelector]\npool = \"code\"\n[[tolerations]]\nkey = \"only\"\noperator = \"Exists\"\n";
        let json = r#"{"runtimeClassName": "gvisor", "nodeSelector": {"pool": "code"},
            "tolerations": [{"key": "only", "operator": "Exists"}]}"#;
        assert_eq!(parse(toml).unwrap(), parse(json).unwrap());
        assert_eq!(parse("").unwrap(), PodSettings::default());
    }

    #[test]
    fn another_field_of_a_pod_is_refused_by_its_name() {
        for text in ["hostNetwork = true", r#"{"hostNetwork": true}"#, "[securityContext]\nrunAsUser = 0"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("unknown field") && error.contains(" line "), "{error}");
        }
        let error = parse("runtimeClassName = 'A B'").unwrap_err();
        assert!(error.contains("runtimeClassName"), "{error}");
    }
}
