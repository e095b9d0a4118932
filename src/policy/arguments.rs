//! Conditions on the arguments of a call.

use std::fmt;

use regex::Regex;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::decimal::Decimal;

/// How deep arguments may be nested to be judged: each level is read again by the one around it.
const DEEPEST: usize = 64;

/// A condition on one argument.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) pointer: Pointer,
    pub(super) test: Test,
}

/// What a value must be.
#[derive(Debug)]
pub(super) enum Test {
    Equals(Value),
    /// A text that the pattern fits as a whole.
    Matches(Regex),
    /// A number.
    LessThan(Decimal),
}

/// A JSON pointer: <https://www.rfc-editor.org/rfc/rfc6901>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer(String);

impl Pointer {
    /// Returns None if the text is no pointer to an argument.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        (text.starts_with('/') && escapes).then(|| Self(text.to_owned()))
    }
}

impl Condition {
    /// Returns whether the arguments fulfil it. An argument that is missing or of another type does not.
    pub(super) fn holds(&self, arguments: &Value) -> bool {
        let Some(value) = arguments.pointer(&self.pointer.0) else { return false };
        match &self.test {
            Test::Equals(expected) => equal(expected, value),
            Test::Matches(pattern) => value.as_str().is_some_and(|text| pattern.is_match(text)),
            Test::LessThan(limit) => number(value).is_some_and(|number| number < *limit),
        }
    }
}

/// Returns a number that is no text.
fn number(value: &Value) -> Option<Decimal> {
    Decimal::parse(&value.as_number()?.to_string())
}

/// Compares values; numbers by value, not as they are written.
fn equal(expected: &Value, value: &Value) -> bool {
    match (expected, value) {
        (Value::Number(_), Value::Number(_)) => {
            number(expected).is_some_and(|expected| number(value).is_some_and(|value| value == expected))
        }
        (Value::Array(expected), Value::Array(value)) => {
            expected.len() == value.len() && expected.iter().zip(value).all(|(a, b)| equal(a, b))
        }
        (Value::Object(expected), Value::Object(value)) => {
            expected.len() == value.len()
                && expected.iter().all(|(key, a)| value.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => expected == value,
    }
}

/// Reads arguments for conditions. Servers differ in which of two values with one name they take, so such arguments cannot be
/// judged.
///
/// # Errors
/// They are not JSON, have a name twice in one object, or are nested too deeply.
pub fn read(json: &[u8]) -> Result<Value, serde_json::Error> {
    value(serde_json::from_slice(json)?, DEEPEST)
}

/// Reads a value piece by piece. `serde_json` itself takes an object with a certain name for a number.
fn value(raw: &RawValue, depth: usize) -> Result<Value, serde_json::Error> {
    let text = raw.get();
    let deeper = || {
        depth
            .checked_sub(1)
            .ok_or_else(|| serde_json::Error::custom(format!("they are nested deeper than {DEEPEST} levels")))
    };
    match text.as_bytes().first() {
        Some(b'{') => {
            let depth = deeper()?;
            let Entries(entries) = serde_json::from_str(text)?;
            let mut map = Map::new();
            for (name, raw) in entries {
                if map.insert(name, value(raw, depth)?).is_some() {
                    return Err(serde_json::Error::custom("they have a name twice"));
                }
            }
            Ok(map.into())
        }
        Some(b'[') => {
            let depth = deeper()?;
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            items.into_iter().map(|raw| value(raw, depth)).collect()
        }
        // A condition on a number that cannot be compared would not hold, and a rule that denies would be passed by.
        Some(b'-' | b'0'..=b'9') if Decimal::parse(text).is_none() => {
            Err(serde_json::Error::custom("a number is out of range"))
        }
        _ => serde_json::from_str(text),
    }
}

/// The names and values of an object, as they are written.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(pointer: &str, test: Test, arguments: &str) -> bool {
        let condition = Condition { pointer: Pointer::parse(pointer).unwrap(), test };
        condition.holds(&read(arguments.as_bytes()).unwrap())
    }

    #[test]
    fn a_value_equals_by_value_and_not_by_its_digits() {
        for (expected, arguments, fits) in [
            (json!(1), r#"{"a":1}"#, true),
            (json!(1), r#"{"a":1.0}"#, true),
            (json!(1), r#"{"a":"1"}"#, false),
            (json!(true), r#"{"a":1}"#, false),
            (json!("x"), r#"{"a":"\u0078"}"#, true),
            (json!([1, 2]), r#"{"a":[1,2.0]}"#, true),
            (json!({"b": 1}), r#"{"a":{"b":1,"c":2}}"#, false),
            (json!(9_007_199_254_740_993_i64), r#"{"a":9007199254740992}"#, false),
            (json!(9_007_199_254_740_993_i64), r#"{"a":9007199254740993.0}"#, true),
            (json!(u64::MAX), r#"{"a":18446744073709551614}"#, false),
        ] {
            assert_eq!(
                holds("/a", Test::Equals(expected.clone()), arguments),
                fits,
                "{expected} {arguments}"
            );
        }
        assert!(!holds("/b", Test::Equals(Value::Null), r#"{"a":1}"#), "a missing argument is not null");
        assert!(holds("/a~1b/0", Test::Equals(json!(1)), r#"{"a/b":[1]}"#));
    }

    #[test]
    fn only_numbers_are_less_than_a_number() {
        for (value, fits) in [
            ("99.5", true),
            ("100", false),
            ("-1e3", true),
            ("\"5\"", false),
            ("null", false),
            ("-1e999", true),
            ("99.99999999999999999999", true),
            ("100.00000000000000000001", false),
        ] {
            assert_eq!(
                holds("/a", Test::LessThan(Decimal::parse("100").unwrap()), &format!(r#"{{"a":{value}}}"#)),
                fits,
                "{value}"
            );
        }
    }

    #[test]
    fn a_name_twice_cannot_be_judged_at_any_depth() {
        for bad in [r#"{"a":1,"a":2}"#, r#"{"b":[{"a":1,"\u0061":2}]}"#, r#"{"a":1} {}"#] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
        let deep = |depth: usize| format!(r#"{{"a":{}1{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(read(deep(63).as_bytes()).is_ok());
        for depth in [64, 1_000_000] {
            assert!(read(deep(depth).as_bytes()).unwrap_err().to_string().contains("64 levels"));
        }
        for number in ["1e-99999999999999999999", "0e99999999999999999999"] {
            assert!(read(format!(r#"{{"a":{number}}}"#).as_bytes()).is_err(), "{number}");
        }
        let disguised = br#"{"a":{"$serde_json::private::Number":"5"}}"#;
        assert!(read(disguised).unwrap()["a"].is_object(), "an object is no number");
        assert_eq!(
            read(br#"{"a":12345678901234567890123,"b":null}"#).unwrap().to_string(),
            r#"{"a":12345678901234567890123,"b":null}"#
        );
    }

    #[test]
    fn a_pointer_starts_with_a_slash_and_has_right_escapes() {
        for (text, is_one) in [
            ("/a", true),
            ("/", true),
            ("/a~0b~1", true),
            ("a", false),
            ("", false),
            ("/a~2", false),
            ("/a~", false),
        ] {
            assert_eq!(Pointer::parse(text).is_some(), is_one, "{text}");
        }
    }
}
