//! What values looked like: their types and the names of their fields, as JSON Schema. No value is in it.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How deep values are looked at.
const MOST_DEPTH: usize = 5;
/// Items of a list that are looked at.
const MOST_ITEMS: usize = 20;
/// Fields of an object; one with more is a mapping, whose keys are data.
const MOST_FIELDS: usize = 40;
/// Bytes of the name of a field.
const LONGEST_NAME: usize = 40;
/// Digits in the name of a field; more are a part of an identifier or a date.
const MOST_DIGITS: usize = 3;

/// A type of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    Null,
}

/// What all values looked like that were seen in one place. Written, it is a JSON Schema.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Shape {
    #[serde(rename = "type")]
    kinds: BTreeSet<Kind>,
    /// The fields of objects, unless they are mappings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    properties: Option<IndexMap<String, Shape>>,
    /// The fields that every object had.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    required: BTreeSet<String>,
    /// The values of mappings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    additional_properties: Option<Box<Shape>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<Box<Shape>>,
}

impl Shape {
    /// Returns the shape of one value.
    pub(super) fn of(value: &Value) -> Self {
        Self::within(value, MOST_DEPTH)
    }

    /// Returns the shape as JSON Schema.
    pub(super) fn schema(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Adds what other values looked like.
    pub(super) fn add(&mut self, other: Self) {
        let had_objects = self.kinds.contains(&Kind::Object);
        let has_objects = other.kinds.contains(&Kind::Object);
        self.kinds.extend(other.kinds);
        if self.kinds.contains(&Kind::Number) {
            self.kinds.remove(&Kind::Integer);
        }
        join(&mut self.items, other.items);
        match (had_objects, has_objects) {
            (_, false) => {}
            (false, true) => {
                self.properties = other.properties;
                self.required = other.required;
                self.additional_properties = other.additional_properties;
            }
            (true, true) => {
                self.required.retain(|name| other.required.contains(name));
                self.add_fields(other.properties, other.additional_properties);
            }
        }
    }

    fn add_fields(&mut self, fields: Option<IndexMap<String, Self>>, values: Option<Box<Self>>) {
        join(&mut self.additional_properties, values);
        let known = self.properties.get_or_insert_default();
        let fields = fields.unwrap_or_default();
        // Objects of one kind have fields in common.
        let differ =
            !known.is_empty() && !fields.is_empty() && !fields.keys().any(|name| known.contains_key(name));
        for (name, shape) in fields {
            known.entry(name).or_default().add(shape);
        }
        if differ || known.len() > MOST_FIELDS || self.additional_properties.is_some() {
            self.become_mapping();
        }
    }

    /// Forgets the names of fields.
    fn become_mapping(&mut self) {
        for (_, shape) in self.properties.take().unwrap_or_default() {
            join(&mut self.additional_properties, Some(Box::new(shape)));
        }
        self.required.clear();
        self.additional_properties.get_or_insert_default();
    }

    fn within(value: &Value, depth: usize) -> Self {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(number) if number.is_f64() => Kind::Number,
            Value::Number(_) => Kind::Integer,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        };
        let mut shape = Self { kinds: [kind].into(), ..Self::default() };
        match value {
            _ if depth == 0 => {}
            Value::Array(items) => {
                for item in items.iter().take(MOST_ITEMS) {
                    join(&mut shape.items, Some(Box::new(Self::within(item, depth - 1))));
                }
            }
            Value::Object(fields) => shape.take_fields(fields, depth - 1),
            _ => {}
        }
        shape
    }

    fn take_fields(&mut self, fields: &Map<String, Value>, depth: usize) {
        if fields.len() <= MOST_FIELDS && fields.keys().all(|name| is_name_of_field(name)) {
            let of = |(name, value): (&String, &Value)| (name.clone(), Self::within(value, depth));
            self.properties = Some(fields.iter().map(of).collect());
            self.required = fields.keys().cloned().collect();
            return;
        }
        for value in fields.values().take(MOST_ITEMS) {
            join(&mut self.additional_properties, Some(Box::new(Self::within(value, depth))));
        }
        self.additional_properties.get_or_insert_default();
    }
}

/// Adds one shape to another.
fn join(known: &mut Option<Box<Shape>>, other: Option<Box<Shape>>) {
    match (known, other) {
        (Some(known), Some(other)) => known.add(*other),
        (known @ None, other) => *known = other,
        (Some(_), None) => {}
    }
}

/// Whether a key of an object is the name of a field, and not data.
fn is_name_of_field(name: &str) -> bool {
    let bare = name.strip_prefix(['$', '@']).unwrap_or(name);
    name.len() <= LONGEST_NAME
        && bare.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        && bare.bytes().filter(u8::is_ascii_digit).count() <= MOST_DIGITS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(values: &[Value]) -> Value {
        let mut shape = Shape::default();
        values.iter().for_each(|value| shape.add(Shape::of(value)));
        shape.schema()
    }

    #[test]
    fn values_are_types_and_names() {
        assert_eq!(seen(&[json!("hunter2")]), json!({ "type": ["string"] }));
        assert_eq!(seen(&[json!(1), json!(1.5), json!(null)]), json!({ "type": ["number", "null"] }));
        assert_eq!(seen(&[json!([])]), json!({ "type": ["array"] }));
        let issue = json!({ "title": "secret", "number": 7, "labels": ["a"], "user": { "login": "bob" } });
        assert_eq!(
            seen(&[json!([issue])]),
            json!({ "type": ["array"], "items": {
                "type": ["object"],
                "properties": {
                    "title": { "type": ["string"] },
                    "number": { "type": ["integer"] },
                    "labels": { "type": ["array"], "items": { "type": ["string"] } },
                    "user": { "type": ["object"], "properties": { "login": { "type": ["string"] } }, "required": ["login"] },
                },
                "required": ["labels", "number", "title", "user"],
            } })
        );
    }

    #[test]
    fn a_field_that_some_objects_lack_is_optional() {
        let schema = seen(&[json!([{ "a": 1, "b": 2 }, { "a": "x", "c": null }, null])]);
        assert_eq!(schema["items"]["required"], json!(["a"]));
        assert_eq!(schema["items"]["properties"]["a"], json!({ "type": ["string", "integer"] }));
        assert_eq!(schema["items"]["type"], json!(["object", "null"]));
    }

    #[test]
    fn keys_that_are_data_are_not_kept() {
        let many: Map<_, _> = (0..50).map(|n| (format!("k{n}"), json!(n))).collect();
        for value in [
            json!({ "bob@example.org": 1 }),
            json!({ "2026-01-02": 1 }),
            json!({ "id4711x0": 1 }),
            json!({ "a b": 1 }),
            json!({ "x".repeat(41): 1 }),
            json!(many),
        ] {
            let mapping = json!({ "type": ["object"], "additionalProperties": { "type": ["integer"] } });
            assert_eq!(seen(&[value]), mapping);
        }
        let mapping = seen(&[json!({ "alice": { "age": 1 } }), json!({ "bob": { "age": 2 } })]);
        assert_eq!(mapping["additionalProperties"]["properties"]["age"], json!({ "type": ["integer"] }));
        assert!(!mapping.to_string().contains("bob") && !mapping.to_string().contains("alice"), "{mapping}");
        let again = seen(&[json!({ "a b": 1 }), json!({ "plain": 1 })]);
        assert!(!again.to_string().contains("plain"), "{again}");
    }

    #[test]
    fn what_is_large_or_deep_ends() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!({ "next": [deep] });
        }
        let long = json!(vec![json!({ "a": 1 }); 100_000]);
        assert!(seen(&[deep, long]).to_string().len() < 1000);
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        for value in [json!({ "a": [{ "b": null }] }), json!({ "a b": 1 }), json!(1.5)] {
            let shape = Shape::of(&value);
            assert_eq!(serde_json::from_value::<Shape>(shape.schema()).unwrap(), shape);
        }
    }
}
