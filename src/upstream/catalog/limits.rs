//! Limits of the documentation of one server, which can send anything.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::upstream::tool_doc::{ToolDoc, floor_char_boundary};

/// Tools of one server.
pub(super) const MOST_TOOLS: usize = 20_000;
/// Bytes of a name. Longer ones cannot be cut, because calls need the whole name.
const LONGEST_NAME: usize = 256;
/// Bytes of a title.
const LONGEST_TITLE: usize = 512;
/// Bytes of a description.
const LONGEST_DESCRIPTION: usize = 32 << 10;
/// Bytes and depth of a schema. A larger one is replaced, because a part of it would be wrong.
const LARGEST_SCHEMA: usize = 256 << 10;
const DEEPEST_SCHEMA: usize = 64;
/// Bytes of all tools of a server. Tools beyond it lose their descriptions and schemas.
pub(super) const LARGEST_SERVER: usize = 48 << 20;

/// What was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cut {
    /// Tools beyond the limit, and those with an empty, long or duplicate name.
    pub(super) tools: usize,
    /// Titles and descriptions that were shortened.
    pub(super) texts: usize,
    /// Schemas that were replaced or removed.
    pub(super) schemas: usize,
}

/// Cuts documentation to the limits.
pub(super) fn limited(docs: Vec<ToolDoc>) -> (Vec<ToolDoc>, Cut) {
    let mut cut = Cut::default();
    let mut names = HashSet::new();
    let mut left = LARGEST_SERVER;
    let sent = docs.len();
    let mut kept = Vec::new();
    for mut doc in docs {
        let usable = !doc.name.is_empty() && doc.name.len() <= LONGEST_NAME;
        if kept.len() == MOST_TOOLS || !usable || !names.insert(doc.name.clone()) {
            continue;
        }
        let texts = [
            doc.title.as_mut().is_some_and(|title| shorten(title, LONGEST_TITLE)),
            shorten(&mut doc.description, LONGEST_DESCRIPTION.min(left)),
        ];
        cut.texts += texts.into_iter().filter(|cut| *cut).count();
        left = left.saturating_sub(doc.description.len());
        if !fits(&doc.input_schema, &mut left) {
            doc.input_schema = json!({ "type": "object" });
            cut.schemas += 1;
        }
        if doc.output_schema.as_ref().is_some_and(|schema| !fits(schema, &mut left)) {
            doc.output_schema = None;
            cut.schemas += 1;
        }
        kept.push(doc);
    }
    cut.tools = sent - kept.len();
    (kept, cut)
}

fn shorten(text: &mut String, most: usize) -> bool {
    if text.len() <= most {
        return false;
    }
    text.truncate(floor_char_boundary(text, most.saturating_sub('…'.len_utf8())));
    text.push('…');
    true
}

/// Whether a schema is within its limits and `budget`, from which its size is taken.
fn fits(schema: &Value, budget: &mut usize) -> bool {
    let most = LARGEST_SCHEMA.min(*budget);
    let rest = take(schema, DEEPEST_SCHEMA, most);
    *budget -= most - rest.unwrap_or(most);
    rest.is_some()
}

/// Takes the approximate size of a value in bytes from `budget`; None if it is larger, or deeper than `depth`. It is looked at
/// no further than that: a server may send any amount.
fn take(value: &Value, depth: usize, budget: usize) -> Option<usize> {
    let inner = |value, budget| take(value, depth.checked_sub(1)?, budget);
    match value {
        Value::Null | Value::Bool(_) => budget.checked_sub(5),
        Value::Number(number) => budget.checked_sub(number.as_str().len()),
        Value::String(text) => budget.checked_sub(text.len() + 2),
        Value::Array(_) | Value::Object(_) if depth == 0 => None,
        Value::Array(items) => {
            items.iter().try_fold(budget.checked_sub(2)?, |rest, item| inner(item, rest.checked_sub(1)?))
        }
        Value::Object(fields) => fields.iter().try_fold(budget.checked_sub(2)?, |rest, (key, value)| {
            inner(value, rest.checked_sub(key.len() + 4)?)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ToolDoc {
        ToolDoc { name: name.into(), ..ToolDoc::default() }
    }

    #[test]
    fn ordinary_tools_stay_as_they_are() {
        let doc = ToolDoc {
            title: Some("A".into()),
            description: "Does it.".into(),
            input_schema: json!({ "type": "object", "properties": { "a": { "enum": [1, 2.5, null, true] } } }),
            output_schema: Some(json!({ "type": "array" })),
            ..named("a")
        };
        assert_eq!(limited(vec![doc.clone()]), (vec![doc], Cut::default()));
    }

    #[test]
    fn names_that_cannot_be_used_are_left_out() {
        let (kept, cut) =
            limited(vec![named(""), named("a"), named(&"n".repeat(257)), named("a"), named("b")]);
        assert_eq!(kept.iter().map(|doc| &*doc.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(cut.tools, 3);
    }

    #[test]
    fn too_many_tools_are_counted() {
        let docs = (0..100_000).map(|i| named(&i.to_string())).collect();
        let (kept, cut) = limited(docs);
        assert_eq!((kept.len(), cut.tools), (MOST_TOOLS, 100_000 - MOST_TOOLS));
    }

    #[test]
    fn megabytes_of_text_are_cut() {
        let doc = ToolDoc { title: Some("ß".repeat(1000)), description: "ß".repeat(2 << 20), ..named("a") };
        let (kept, cut) = limited(vec![doc]);
        assert!(kept[0].description.len() <= LONGEST_DESCRIPTION && kept[0].description.ends_with("ß…"));
        assert!(kept[0].title.as_ref().is_some_and(|title| title.len() <= LONGEST_TITLE));
        assert_eq!(cut.texts, 2);
    }

    #[test]
    fn deep_and_large_schemas_are_replaced() {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({ "items": deep });
        }
        let large = json!({ "description": "x".repeat(1 << 20) });
        for schema in [deep, large] {
            let doc = ToolDoc { input_schema: schema.clone(), output_schema: Some(schema), ..named("a") };
            let (kept, cut) = limited(vec![doc]);
            assert_eq!(kept[0].input_schema, json!({ "type": "object" }));
            assert_eq!((kept[0].output_schema.as_ref(), cut.schemas), (None, 2));
        }
    }

    #[test]
    fn the_documentation_of_a_server_is_limited() {
        let schema = json!({ "description": "x".repeat(200 << 10) });
        let docs = (0..1000).map(|i| ToolDoc {
            description: "y".repeat(30 << 10),
            input_schema: schema.clone(),
            ..named(&i.to_string())
        });
        let (kept, cut) = limited(docs.collect());
        let kept_bytes: usize =
            kept.iter().map(|doc| doc.description.len() + doc.input_schema.to_string().len()).sum();
        assert_eq!(kept.len(), 1000);
        assert!(cut.schemas > 500 && cut.texts > 500, "{cut:?}");
        assert!(kept_bytes < LARGEST_SERVER + (1 << 20), "{kept_bytes}");
    }
}
