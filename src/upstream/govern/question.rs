//! The text of a question to the person. What comes from code or servers stays in lines of its own, whatever it contains.

use codebridge_runtimes::exec::visible_line;
use serde_json::Value;
use serde_json::value::RawValue;

use super::credentials::names_credential;
use super::wanted::WantedCall;
use crate::policy::{Kind, RuleName, read_arguments};
use crate::upstream::called_by::CalledBy;
use crate::upstream::pool::Secrets;

/// Bytes of arguments that a person can be asked about.
const LARGEST: usize = 64 << 10;
/// Arguments of a call that a person can be asked about, and characters that are shown of each.
const MOST_ARGUMENTS: usize = 40;
const LONGEST_SHOWN: usize = 300;
/// Characters of all arguments that are shown, and of all that a question may need.
const LONGEST_TEXT: usize = 1_200;
const LONGEST_QUESTION: usize = 1_900;
/// Characters of a line of code.
const LONGEST_LINE: usize = 160;
/// Bytes of a credential that is looked for in the line of code.
const SHORTEST: usize = 4;
/// How that begins which is shown for a credential.
const MASK: &str = "(hidden";

/// What the person is asked about.
pub(super) struct Question<'a> {
    pub(super) call: &'a WantedCall<'a>,
    pub(super) rule: &'a RuleName,
    /// How often the person was asked about this tool in this run, and how many of its calls were approved.
    pub(super) asked: u32,
    pub(super) approved: u64,
    pub(super) secrets: &'a Secrets,
}

/// Returns the question about something else than a call; `of` is its server, if it has one.
pub(super) fn text_of_other(
    kind: Kind,
    name: &str,
    of: Option<&str>,
    by: &CalledBy,
    rule: &RuleName,
    asked: u32,
) -> String {
    let mut text = format!("Allow code to use this {kind}?\n\n{kind}: {}\n", short(name, 200));
    if let Some(server) = of {
        text.push_str(&format!("server: {}\n", short(server, 100)));
    }
    if let Some(session) = &by.session {
        text.push_str(&format!("session: {}\n", short(session, 100)));
    }
    if let Some(reason) = &rule.reason {
        text.push_str(&format!("why you are asked: {}\n", short(reason, 200)));
    }
    if asked > 0 {
        text.push_str(&format!("asked in this run before: {asked}\n"));
    }
    text
}

impl Question<'_> {
    /// Returns None if the arguments are too long, or too many, for anybody to judge them.
    pub(super) fn text(&self) -> Option<String> {
        let WantedCall { server, tool, arguments, by, .. } = self.call;
        let mut text =
            format!("Allow this call?\n\ntool: {}.{}\n", short(&server.name, 100), short(tool, 200));
        let mut hidden = Vec::new();
        text.push_str(&self.arguments(arguments.as_bytes(), &mut hidden)?);
        if let Some(line) = &by.line {
            let code = self.secrets.redact(line.text.trim());
            let code = hidden.iter().fold(code, |code, secret| code.replace(secret, "(hidden)"));
            text.push_str(&format!("line {} of the code: {}\n", line.number, short(&code, LONGEST_LINE)));
        }
        if let Some(session) = &by.session {
            text.push_str(&format!("session: {}\n", short(session, 100)));
        }
        if let Some(reason) = &self.rule.reason {
            text.push_str(&format!("why you are asked: {}\n", short(reason, 200)));
        }
        if self.asked > 0 {
            text.push_str(&format!("calls of this tool in this run so far: {}\n", self.approved));
        }
        (text.chars().count() <= LONGEST_QUESTION).then_some(text)
    }

    /// Adds the texts that are not shown to `hidden`: the line of code may have them too.
    fn arguments(&self, json: &[u8], hidden: &mut Vec<String>) -> Option<String> {
        if json.len() > LARGEST {
            return None;
        }
        // As they are written: a server may take the first of two values with one name, and a map keeps the last.
        let members = members(json)?;
        // What is not shown could be what matters.
        if members.len() > MOST_ARGUMENTS {
            return None;
        }
        if members.is_empty() {
            return Some("no arguments\n".into());
        }
        let mut text = String::from("arguments:\n");
        let mut left = LONGEST_TEXT;
        for (name, value) in &members {
            let shown = self.masked(name, value, hidden)?;
            let line = format!("  {}: {}\n", quoted(name), short(&shown, LONGEST_SHOWN.min(left)));
            left = left.saturating_sub(line.chars().count()).max(20);
            text.push_str(&line);
        }
        Some(text)
    }

    /// Returns a value in one line, without credentials at any depth; None if a server could read it in another way, such as one
    /// of two values with one name.
    fn masked(&self, name: &str, raw: &RawValue, hidden: &mut Vec<String>) -> Option<String> {
        let value = read_arguments(raw.get().as_bytes()).ok()?;
        Some(match mask(name, value, hidden) {
            Value::String(text) if text.starts_with(MASK) => text,
            value => self.secrets.redact_value(value).to_string(),
        })
    }
}

/// Hides what has the name of a credential.
fn mask(name: &str, value: Value, hidden: &mut Vec<String>) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| mask(name, item, hidden)).collect(),
        Value::Object(members) => {
            let mut masked = |(name, value): (String, Value)| {
                let value = mask(&name, value, hidden);
                (name, value)
            };
            members.into_iter().map(&mut masked).collect()
        }
        value if !names_credential(name) => value,
        Value::String(text) => {
            let mask = format!("{MASK}, {} characters)", text.chars().count());
            if text.len() >= SHORTEST {
                hidden.push(text);
            }
            mask.into()
        }
        _ => format!("{MASK})").into(),
    }
}

/// Returns the names and values of an object, each as often as it is there.
fn members(json: &[u8]) -> Option<Vec<(String, Box<RawValue>)>> {
    struct Members;
    impl<'de> serde::de::Visitor<'de> for Members {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_slice(json), Members).ok()
}

/// Returns the name of an argument. One that is no plain name is quoted: it could look like an argument and its value.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.$".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => short(name, 100),
        false => short(&Value::from(name).to_string(), 100),
    }
}

/// Returns a text in one line, cut after so many characters, with the number of those that are left out.
fn short(text: &str, most: usize) -> String {
    let text = visible_line(text);
    match text.char_indices().nth(most) {
        None => text,
        Some((end, _)) => format!("{}… ({} more characters)", &text[..end], text[end..].chars().count()),
    }
}
