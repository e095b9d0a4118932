//! An OpenAPI document: read, checked, and its references followed.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::yaml::parse_yaml;

/// References that lead to each other.
const MOST_HOPS: usize = 32;
/// Characters of a reference that are shown.
const SHOWN: usize = 120;
/// Members of which the values are no part of the description.
const DATA: [&str; 5] = ["example", "examples", "default", "enum", "const"];

/// Why a text is no OpenAPI document that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DocumentError {
    #[error("it is neither JSON nor YAML: {0}")]
    Syntax(String),
    #[error("it is not an OpenAPI document: {0}")]
    NotOpenApi(&'static str),
    #[error("it is of version {0}, and OpenAPI 3.0 or 3.1 is needed")]
    Version(String),
    #[error("it refers to another document, '{0}': bundle both into one")]
    Remote(String),
    #[error("it describes no operation")]
    NoOperations,
}

#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Value,
}

impl Document {
    /// Parses JSON or YAML.
    pub(super) fn parse(text: &str) -> Result<Self, DocumentError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root: Value = if text.trim_start().starts_with('{') {
            // Flow mappings of YAML look like JSON.
            let parsed = serde_json::from_str(text);
            parsed.or_else(|error| parse_yaml(text).map_err(|_| DocumentError::Syntax(error.to_string())))?
        } else {
            parse_yaml(text).map_err(DocumentError::Syntax)?
        };
        let Some(members) = root.as_object() else {
            return Err(DocumentError::NotOpenApi("it is no object"));
        };
        let version = |key| {
            members
                .get(key)
                .map(|version| version.as_str().map_or_else(|| version.to_string(), str::to_owned))
        };
        match (version("openapi"), version("swagger")) {
            (Some(version), _) if version.starts_with("3.") || version == "3" => {}
            (Some(version), _) => return Err(DocumentError::Version(cut(&version))),
            (None, Some(version)) => {
                return Err(DocumentError::Version(format!("Swagger {}", cut(&version))));
            }
            (None, None) => return Err(DocumentError::NotOpenApi("it has no 'openapi'")),
        }
        if !members.get("paths").is_some_and(Value::is_object) {
            return Err(DocumentError::NotOpenApi("it has no 'paths'"));
        }
        if let Some(remote) = remote_reference(&root) {
            return Err(DocumentError::Remote(cut(remote)));
        }
        Ok(Self { root })
    }

    /// Returns the target of a reference within the document.
    pub(super) fn target(&self, reference: &str) -> Option<&Value> {
        let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
        self.root.pointer(&pointer)
    }

    /// Follows the references at a value; None if one leads nowhere or to itself.
    pub(super) fn follow<'a>(&'a self, mut value: &'a Value) -> Option<&'a Value> {
        for _ in 0..MOST_HOPS {
            match value.get("$ref").and_then(Value::as_str) {
                Some(reference) => value = self.target(reference)?,
                None => return Some(value),
            }
        }
        None
    }
}

/// Returns the first reference to another document.
fn remote_reference(root: &Value) -> Option<&str> {
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref")
                    && !reference.starts_with('#')
                {
                    return Some(reference);
                }
                let is_described = |name: &str| !DATA.contains(&name) && !name.starts_with("x-");
                let inner = members.iter().filter(|(name, _)| is_described(name));
                open.extend(inner.map(|(_, value)| value));
            }
            _ => {}
        }
    }
    None
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Document::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_openapi_3_is_refused() {
        for (text, expected) in [
            ("", "it is not an OpenAPI document: it is no object"),
            ("[1]", "it is not an OpenAPI document: it is no object"),
            ("{}", "it is not an OpenAPI document: it has no 'openapi'"),
            (r#"{"openapi": "3.0.0"}"#, "it is not an OpenAPI document: it has no 'paths'"),
            (
                r#"{"swagger": "2.0", "paths": {}}"#,
                "it is of version Swagger 2.0, and OpenAPI 3.0 or 3.1 is needed",
            ),
            ("swagger: 2.0\npaths: {}", "it is of version Swagger 2.0, and OpenAPI 3.0 or 3.1 is needed"),
            ("openapi: 4.0.0\npaths: {}", "it is of version 4.0.0, and OpenAPI 3.0 or 3.1 is needed"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        assert!(error("{\"openapi\": \"3.0.0\",").starts_with("it is neither JSON nor YAML: EOF"));
        assert!(error("openapi: [3").starts_with("it is neither JSON nor YAML: line "));
    }

    #[test]
    fn references_stay_in_the_document() {
        let text = r##"{"openapi": "3.1.0", "paths": {"/a b": {"x": 7}}, "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"},
            "c": {"$ref": "#/paths/~1a%20b"}, "d": {"$ref": "#/none"}, "example": {"$ref": "data.json"}}"##;
        let document = Document::parse(text).unwrap();
        let follow = |name: &str| document.follow(&document.root[name]);
        assert_eq!(follow("c").unwrap()["x"], 7);
        assert_eq!((follow("a"), follow("d")), (None, None));
        for remote in ["other.yaml#/Pet", "https://example.org/x.json", "./x"] {
            let text = format!(r#"{{"openapi": "3.0.0", "paths": {{"/a": {{"$ref": "{remote}"}}}}}}"#);
            assert_eq!(
                error(&text),
                format!("it refers to another document, '{remote}': bundle both into one")
            );
        }
    }
}
