//! JSON and TOML files as trees in which every node knows its line.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use toml::de::{DeTable, DeValue};

/// A value and the line on which it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// A number or a date, as it was written.
    Scalar(String),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file. Names may occur twice.
    Table(Vec<(String, Node)>),
}

/// Something wrong in a file.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) message: String,
}

impl Node {
    /// The first member of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.members().iter().find(|(key, _)| key == name).map(|(_, node)| node)
    }

    /// The members of a table; none of anything else.
    pub(super) fn members(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Table(members) => members,
            _ => &[],
        }
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, Value::Table(_))
    }

    /// Returns the kind of the value for an error message.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Scalar(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Table(_) => "an object",
        }
    }
}

/// JSON as the files of clients contain it: with comments and trailing commas.
pub const JSON_WITH_COMMENTS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parses JSON, in which comments and trailing commas are allowed. Returns None for an empty file.
pub(super) fn parse_json(text: &str) -> Result<Option<Node>, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = Lines::of(text);
    match parse_to_ast(text, &CollectOptions::default(), &JSON_WITH_COMMENTS) {
        Ok(parsed) => Ok(parsed.value.map(|value| from_json(&value, &lines))),
        Err(error) => {
            let line = lines.line(error.range().start);
            Err(Problem { line, message: error.kind().to_string() })
        }
    }
}

/// Parses TOML.
pub(super) fn parse_toml(text: &str) -> Result<Option<Node>, Problem> {
    let lines = Lines::of(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(Some(Node { line: 1, value: from_table(table.get_ref(), &lines) })),
        Err(error) => {
            let line = error.span().map_or(1, |span| lines.line(span.start));
            Err(Problem { line, message: error.message().replace('\n', ", ") })
        }
    }
}

fn from_json(value: &ast::Value<'_>, lines: &Lines) -> Node {
    let line = lines.line(value.start());
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(literal) => Value::Bool(literal.value),
        ast::Value::NumberLit(literal) => Value::Scalar(literal.value.to_string()),
        ast::Value::StringLit(literal) => Value::Text(literal.value.to_string()),
        ast::Value::Array(array) => {
            Value::List(array.elements.iter().map(|item| from_json(item, lines)).collect())
        }
        ast::Value::Object(object) => {
            let member = |property: &ast::ObjectProp<'_>| {
                (property.name.as_str().to_string(), from_json(&property.value, lines))
            };
            Value::Table(object.properties.iter().map(member).collect())
        }
    };
    Node { line, value }
}

fn from_table(table: &DeTable<'_>, lines: &Lines) -> Value {
    let mut members: Vec<_> = table.iter().collect();
    // The parser sorts by name, but the first definition of a name wins.
    members.sort_by_key(|(name, _)| name.span().start);
    let member = |(name, value): &(&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let line = lines.line(name.span().start);
        (
            AsRef::<str>::as_ref(name.get_ref()).to_string(),
            Node { line, value: from_toml(value.get_ref(), lines) },
        )
    };
    Value::Table(members.iter().map(member).collect())
}

fn from_toml(value: &DeValue<'_>, lines: &Lines) -> Value {
    match value {
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Scalar(number.to_string()),
        DeValue::Float(number) => Value::Scalar(number.to_string()),
        DeValue::Datetime(date) => Value::Scalar(date.to_string()),
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|item| Node {
                    line: lines.line(item.span().start),
                    value: from_toml(item.get_ref(), lines),
                })
                .collect(),
        ),
        DeValue::Table(table) => from_table(table, lines),
    }
}

/// The positions at which the lines of a text start.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1).collect())
    }

    /// Returns the line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_allowed() {
        let text = "\u{feff}{ // servers\n  \"a\": [1, \"x\", true, null,], /* b */\n  \"b\": {},\n}\n";
        let node = parse_json(text).unwrap().unwrap();
        assert_eq!(node.get("a").unwrap().line, 2);
        let Value::List(items) = &node.get("a").unwrap().value else { panic!("no list") };
        assert_eq!(items[0].value, Value::Scalar("1".into()));
        assert_eq!((items.len(), node.get("b").unwrap().line), (4, 3));
        assert_eq!(parse_json(" // nothing\n").unwrap(), None);
    }

    #[test]
    fn invalid_json_is_reported_with_its_line() {
        for (text, line) in [
            ("{\n\"a\": 1\n\"b\": 2}", 2),
            ("{\n'a': 1}", 2),
            ("{\na: 1}", 2),
            ("{\"a\": 0x10}", 1),
            ("{\"a\":\n", 2),
            ("{} {}", 1),
        ] {
            let error = parse_json(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {}", error.message);
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse_json(&deep).is_err());
    }

    #[test]
    fn duplicate_names_are_both_kept() {
        let node = parse_json("{\"a\": 1, \"a\": 2}").unwrap().unwrap();
        assert_eq!(node.members().len(), 2);
        assert_eq!(node.get("a").unwrap().value, Value::Scalar("1".into()));
    }

    #[test]
    fn toml_keeps_order_and_lines() {
        let text = "[mcp_servers.zeta]\ncommand = \"z\"\nargs = [\"a\", 2]\n\n[mcp_servers.alpha]\nenabled = false\n";
        let node = parse_toml(text).unwrap().unwrap();
        let servers = node.get("mcp_servers").unwrap();
        let names: Vec<_> = servers.members().iter().map(|(name, node)| (name.as_str(), node.line)).collect();
        assert_eq!(names, [("zeta", 1), ("alpha", 5)]);
        assert_eq!(servers.get("alpha").unwrap().get("enabled").unwrap().value, Value::Bool(false));
        let error = parse_toml("a = 1\nb = \n").unwrap_err();
        assert_eq!(error.line, 2, "{}", error.message);
        let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse_toml(&deep).is_err());
    }
}
