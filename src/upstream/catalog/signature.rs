//! A tool as one line that reads like a Python function: `create_issue(owner, repo, labels?: list[str]) -> Issue`.
//!
//! Strings have no type; `?` marks optional arguments.

use serde_json::Value;

use super::types::{ANY, Types};
use crate::upstream::tool_doc::{DocKind, ToolDoc};

/// Bytes up to which optional arguments are shown.
const MOST_OPTIONAL: usize = 95;
/// Bytes of any signature.
const MOST: usize = 400;
/// Bytes of a whole signature.
const MOST_WHOLE: usize = 4000;
/// Bytes of the type of the result.
const LONGEST_RESULT: usize = 60;

/// Stands for the name of the server, which is not part of a documentation.
const SERVER: &str = "\u{1}";

/// Returns the signature of a tool. A long one ends in `…`.
pub(in crate::upstream) fn signature(alias: &str, doc: &ToolDoc) -> String {
    of_any(alias, doc, MOST, MOST_OPTIONAL)
}

/// Returns the signature with all optional arguments.
pub(super) fn whole_signature(alias: &str, doc: &ToolDoc) -> String {
    of_any(alias, doc, MOST_WHOLE, MOST_WHOLE)
}

/// Puts the name of the server into the signature of something else than a tool.
pub(super) fn with_server(signature: &str, server: &str) -> String {
    signature.replacen(SERVER, &Value::from(server).to_string(), 1)
}

fn of_any(alias: &str, doc: &ToolDoc, most: usize, most_optional: usize) -> String {
    let name = || Value::from(doc.name.as_str());
    match doc.kind {
        DocKind::Tool => render(alias, &doc.input_schema, doc.output_schema.as_ref(), most, most_optional),
        DocKind::Resource | DocKind::Template => format!("runtime.read_resource({SERVER}, {})", name()),
        DocKind::Prompt => {
            let arguments = render("", &doc.input_schema, None, most, most_optional);
            let arguments = arguments.trim_start_matches('(').trim_end_matches(')');
            let comma = if arguments.is_empty() { "" } else { ", " };
            format!("runtime.get_prompt({SERVER}, {}{comma}{arguments})", name())
        }
    }
}

fn render(alias: &str, input: &Value, output: Option<&Value>, most: usize, most_optional: usize) -> String {
    let mut text = format!("{alias}(");
    for (at, parameter) in Types::of(input).parameters().iter().enumerate() {
        let rendered = parameter.render();
        if at > 0 {
            text.push_str(", ");
        }
        if text.len() + rendered.len() > if parameter.required { most } else { most_optional } {
            text.push('…');
            break;
        }
        text.push_str(&rendered);
    }
    text.push(')');
    if let Some(result) = output.and_then(result) {
        text.push_str(" -> ");
        text.push_str(&result);
    }
    text
}

/// Returns what results looked like, as the end of a signature; None if they had nothing in common.
pub(super) fn seen_result(schema: &Value) -> Option<String> {
    result(schema).map(|result| format!(" -> {result} (seen)"))
}

/// Returns the title of a schema if it is a name, else its type.
fn result(schema: &Value) -> Option<String> {
    let title = schema.get("title").and_then(Value::as_str).filter(|title| is_name(title));
    let name = title.map_or_else(|| Types::of(schema).whole(), str::to_owned);
    let short = if name.len() <= LONGEST_RESULT { name } else { shortened(&name) };
    Some(short).filter(|name| name != ANY)
}

fn is_name(title: &str) -> bool {
    // Generated titles repeat the name of the tool.
    !["Output", "Result", "Response", "Return"].iter().any(|end| title.ends_with(end))
        && title.len() <= LONGEST_RESULT
        && title.starts_with(|c: char| c.is_ascii_uppercase())
        && title.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns the outer type only.
fn shortened(name: &str) -> String {
    let end = name.find(['[', '{', '|']).unwrap_or(0);
    match &name[..end] {
        "" if name.starts_with('{') => "dict".into(),
        kind @ ("list" | "dict") => kind.into(),
        _ => ANY.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signature(alias: &str, input: &Value, output: Option<&Value>) -> String {
        let doc =
            ToolDoc { input_schema: input.clone(), output_schema: output.cloned(), ..ToolDoc::default() };
        super::signature(alias, &doc)
    }

    #[test]
    fn a_tool_reads_like_a_function() {
        let input = json!({
            "type": "object",
            "properties": {
                "labels": { "type": "array", "items": { "type": "string" } },
                "owner": { "type": "string" },
                "repo": { "type": "string" },
                "title": { "type": "string" },
                "body": { "type": "string" },
            },
            "required": ["owner", "repo", "title"],
        });
        let output = json!({ "title": "Issue", "type": "object", "properties": { "id": {} } });
        assert_eq!(
            signature("create_issue", &input, Some(&output)),
            "create_issue(owner, repo, title, labels?: list[str], body?) -> Issue"
        );
        assert_eq!(signature("ping", &json!({ "type": "object" }), None), "ping()");
        assert_eq!(signature("odd", &json!("no schema"), Some(&json!(7))), "odd()");
    }

    #[test]
    fn results_without_a_name_show_what_they_have() {
        for (output, expected) in [
            (
                json!({ "properties": { "result": { "type": "string" } }, "required": ["result"] }),
                " -> {result}",
            ),
            (
                json!({ "title": "fooOutput", "type": "array", "items": { "type": "integer" } }),
                " -> list[int]",
            ),
            (
                json!({ "required": ["id", "ok"], "properties": {
                    "id": { "type": "integer" }, "ok": { "type": "boolean" }, "description": { "type": "string" },
                    "more": { "type": "string" } } }),
                " -> {id: int, ok: bool, description?, more?}",
            ),
            (
                json!({ "items": { "properties": { "a": { "enum": ["x".repeat(20), "y".repeat(20)] },
                    "b": { "type": "string" } } } }),
                " -> list[dict]",
            ),
            (
                json!({ "items": { "anyOf": [
                    { "properties": { "a_long_name_of_a_field": {}, "another_name": {} } },
                    { "properties": { "one_more_long_name_of_a_field": {} } }] } }),
                " -> list",
            ),
            (json!({}), ""),
        ] {
            assert_eq!(signature("f", &json!({}), Some(&output)), format!("f(){expected}"));
        }
    }

    #[test]
    fn many_optional_arguments_are_cut_but_required_ones_are_not() {
        let names: Vec<String> = (0..60).map(|i| format!("argument_{i:02}")).collect();
        let properties: serde_json::Map<_, _> =
            names.iter().map(|name| (name.clone(), json!({ "type": "string" }))).collect();
        let optional = signature("f", &json!({ "properties": properties }), None);
        assert!(optional.len() <= MOST_OPTIONAL + 8 && optional.ends_with("?, …)"), "{optional}");
        let doc = ToolDoc { input_schema: json!({ "properties": properties }), ..ToolDoc::default() };
        assert!(whole_signature("f", &doc).ends_with("argument_59?)"));
        let required = signature("f", &json!({ "properties": properties, "required": names[..20] }), None);
        assert!(required.contains("argument_19, …)"), "{required}");
        let all = signature("f", &json!({ "properties": properties, "required": names }), None);
        assert!(all.len() <= MOST + 8, "{all}");
    }
}
