//! The lines of a journal: 16 digits of the hash of what follows, a space, and JSON.

use std::fmt::{self, Display, Formatter};

use codebridge_runtimes::exec::visible_line;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Bytes of the result of a step, as JSON.
pub const LONGEST_RESULT: usize = 1 << 20;
/// Digits before the JSON.
const DIGITS: usize = 16;
/// Characters of a name or key that are shown.
const SHOWN: usize = 80;

/// What a step is known by: its name, and either a key or its number among the steps of that name, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepId {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub number: u32,
}

fn first() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(number: &u32) -> bool {
    *number == 1
}

impl Display for StepId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let short = |text: &str| {
            let shown: String = text.chars().take(SHOWN).collect();
            visible_line(&shown)
        };
        write!(f, "'{}'", short(&self.name))?;
        match (&self.key, self.number) {
            (Some(key), _) => write!(f, " [{}]", short(key)),
            (None, 1) => Ok(()),
            (None, number) => write!(f, " #{number}"),
        }
    }
}

/// One line. Times are in seconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line<'a> {
    /// The first one.
    Started {
        /// The file of the code, as it was named, and the hash of its content.
        file: String,
        code: String,
        arguments: Vec<String>,
        time: u64,
    },
    Resumed {
        code: String,
        time: u64,
    },
    Begun {
        step: StepId,
        time: u64,
    },
    Failed {
        step: StepId,
        attempt: u32,
        error: String,
        time: u64,
    },
    Finished {
        step: StepId,
        /// The hash of the arguments, where they can be written as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        #[serde(borrow)]
        result: &'a RawValue,
        time: u64,
    },
    /// A run ended before the workflow did.
    Stopped {
        status: String,
        error: Option<String>,
        time: u64,
    },
    Completed {
        time: u64,
    },
}

impl Line<'_> {
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let mut line = digits(&json).into_bytes();
        line.push(b' ');
        line.extend(json);
        line.push(b'\n');
        Ok(line)
    }
}

/// Reads a line without its end; None if it is not what was written.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let (digits_there, rest) = line.split_at_checked(DIGITS)?;
    let json = rest.strip_prefix(b" ")?;
    (digits(json).as_bytes() == digits_there).then_some(())?;
    serde_json::from_slice(json).ok()
}

fn digits(json: &[u8]) -> String {
    hex::encode(&Sha256::digest(json)[..DIGITS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_not_otherwise() {
        let step = StepId { name: "pay".into(), key: Some("a\n\u{1b}[2J".into()), number: 1 };
        let result = RawValue::from_string(r#"{"a":1.10}"#.into()).unwrap();
        let line = Line::Finished { step: step.clone(), arguments: None, result: &result, time: 7 };
        let written = line.encode().unwrap();
        let (end, text) = written.split_last().unwrap();
        assert!(*end == b'\n' && !text.contains(&b'\n'));
        let Some(Line::Finished { step: read, result, .. }) = parse(text) else { panic!("not read") };
        assert_eq!((&read, result.get()), (&step, r#"{"a":1.10}"#));
        assert!(!step.to_string().contains('\u{1b}'), "{step}");
        for at in [0, 20, text.len() - 1] {
            let mut changed = text.to_vec();
            changed[at] ^= 1;
            assert!(parse(&changed).is_none(), "byte {at}");
        }
        assert!(parse(b"").is_none() && parse(&text[..text.len() - 1]).is_none());
    }

    #[test]
    fn a_step_is_shown_with_its_key_or_its_number() {
        let step = |key: Option<&str>, number| {
            StepId { name: "pay".into(), key: key.map(String::from), number }.to_string()
        };
        assert_eq!(step(None, 1), "'pay'");
        assert_eq!(step(None, 2), "'pay' #2");
        assert_eq!(step(Some("k"), 1), "'pay' [k]");
        let long = StepId { name: "x".repeat(500), key: None, number: 1 };
        assert_eq!(long.to_string().len(), SHOWN + 2);
    }
}
