//! The fields of a question: what its schema asks for as a form, and what a form says as an answer.

use serde_json::{Map, Number, Value};

use super::form::Fields;
use super::text::{in_a_line, plain};

/// Fields of a form, and choices of one.
const MOST_FIELDS: usize = 50;
const MOST_CHOICES: usize = 200;
/// Choices that are shown side by side.
const FEW: usize = 6;
/// What the names of fields begin with in a form of a page.
const PREFIX: &str = "field.";

/// A field of a form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    /// As the form of the page has it.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) is_required: bool,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Text {
        value: String,
        is_long: bool,
    },
    Number {
        value: String,
        least: String,
        most: String,
        is_whole: bool,
    },
    Box {
        is_ticked: bool,
    },
    /// One of them.
    One {
        choices: Vec<Choice>,
        are_few: bool,
    },
    /// Some of them.
    Some {
        choices: Vec<Choice>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) title: String,
    pub(super) is_chosen: bool,
}

/// Returns the fields that a schema asks for.
pub(super) fn of_schema(schema: &Value) -> Vec<Field> {
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name))
    };
    let field = |(name, property): (&String, &Value)| Field {
        name: format!("{PREFIX}{name}"),
        title: in_a_line(property["title"].as_str().unwrap_or(name)),
        about: plain(property["description"].as_str().unwrap_or_default()),
        is_required: is_required(name),
        kind: kind_of(property),
    };
    properties.iter().take(MOST_FIELDS).map(field).collect()
}

fn kind_of(property: &Value) -> Kind {
    let default = &property["default"];
    if property["type"] == "array" {
        let chosen = |value: &str| default.as_array().is_some_and(|all| all.iter().any(|one| one == value));
        return Kind::Some { choices: choices(&property["items"], chosen) };
    }
    let choices = choices(property, |value| default == value);
    if !choices.is_empty() {
        return Kind::One { are_few: choices.len() <= FEW, choices };
    }
    let number = |value: &Value| value.as_number().map(Number::to_string).unwrap_or_default();
    match property["type"].as_str() {
        Some("boolean") => Kind::Box { is_ticked: default == true },
        Some(kind @ ("integer" | "number")) => Kind::Number {
            value: number(default),
            least: number(&property["minimum"]),
            most: number(&property["maximum"]),
            is_whole: kind == "integer",
        },
        _ => Kind::Text {
            value: default.as_str().unwrap_or_default().to_owned(),
            is_long: property["maxLength"].as_u64().is_some_and(|most| most > 200),
        },
    }
}

/// Returns what can be chosen: `enum` with or without `enumNames`, or `oneOf` and `anyOf` with `const` and `title`.
fn choices(schema: &Value, is_chosen: impl Fn(&str) -> bool) -> Vec<Choice> {
    let choice = |value: &str, title: &str| Choice {
        value: value.to_owned(),
        title: in_a_line(title),
        is_chosen: is_chosen(value),
    };
    if let Some(values) = schema["enum"].as_array() {
        let title = |at: usize| schema["enumNames"][at].as_str();
        let values = values.iter().enumerate().filter_map(|(at, value)| Some((at, value.as_str()?)));
        return values
            .take(MOST_CHOICES)
            .map(|(at, value)| choice(value, title(at).unwrap_or(value)))
            .collect();
    }
    let titled = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    let values = titled.into_iter().flatten().filter_map(|one| Some((one["const"].as_str()?, one)));
    values
        .take(MOST_CHOICES)
        .map(|(value, one)| choice(value, one["title"].as_str().unwrap_or(value)))
        .collect()
}

/// Returns the answer that a form gives. Whoever asked checks it; what was left empty is not in it.
///
/// # Errors
/// A field is missing or is no number; the text names it.
pub(super) fn answer(schema: &Value, sent: &Fields) -> Result<Map<String, Value>, String> {
    let mut answer = Map::new();
    for Field { name, title, is_required, kind, .. } in of_schema(schema) {
        let text = sent.get(&name);
        let value = match kind {
            Kind::Box { .. } => Value::Bool(!text.is_empty()),
            Kind::Some { choices } => {
                let sent = sent.all(&name);
                choices
                    .into_iter()
                    .map(|choice| choice.value)
                    .filter(|value| sent.contains(&value.as_str()))
                    .collect()
            }
            _ if text.is_empty() && is_required => return Err(format!("'{title}' is missing")),
            _ if text.is_empty() => continue,
            Kind::Number { is_whole, .. } => {
                number(text, is_whole).ok_or_else(|| format!("'{title}' is no number"))?
            }
            Kind::One { choices, .. } if choices.iter().all(|choice| choice.value != text) => {
                return Err(format!("'{title}' has no such choice"));
            }
            Kind::One { .. } | Kind::Text { .. } => Value::String(text.to_owned()),
        };
        answer.insert(name[PREFIX.len()..].to_owned(), value);
    }
    Ok(answer)
}

fn number(text: &str, is_whole: bool) -> Option<Value> {
    match is_whole {
        true => text.trim().parse::<i64>().ok().map(Value::from),
        false => text.trim().parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_gives_the_answer_that_its_schema_asks_for() {
        let schema = json!({
            "type": "object",
            "required": ["answer", "who"],
            "properties": {
                "answer": { "type": "string", "title": "Allow it?", "enum": ["no", "yes"], "default": "no" },
                "calls": { "type": "integer", "minimum": 1, "default": 10 },
                "ratio": { "type": "number" },
                "sure": { "type": "boolean" },
                "who": { "type": "string" },
                "note": { "type": "string" },
                "days": { "type": "array", "items": { "anyOf": [{ "const": "mo", "title": "Monday" }, { "const": "tu" }] } },
            },
        });
        let fields = of_schema(&schema);
        let Kind::One { choices, are_few: true } = &fields[0].kind else { panic!("{fields:?}") };
        assert!(choices[0].is_chosen && !choices[1].is_chosen && fields[0].is_required);
        let sent = |text: &str| answer(&schema, &Fields::parse(text.as_bytes()));
        let good = "field.answer=yes&field.calls=3&field.ratio=0.5&field.sure=on&field.who=%3Cb%3E&field.days=mo&field.days=x&other=1";
        assert_eq!(
            Value::Object(sent(good).unwrap()),
            json!({ "answer": "yes", "calls": 3, "ratio": 0.5, "sure": true, "who": "<b>", "days": ["mo"] })
        );
        assert_eq!(sent("field.answer=yes"), Err("'who' is missing".into()));
        assert_eq!(sent("field.answer=maybe&field.who=x"), Err("'Allow it?' has no such choice".into()));
        assert_eq!(sent("field.answer=no&field.who=x&field.calls=1e3"), Err("'calls' is no number".into()));
        assert_eq!(of_schema(&json!("x")), []);
    }
}
