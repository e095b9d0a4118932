//! What the bridge answers to a question of code in the sandbox, as it is on the wire.

use std::io;

use serde::Serialize;
use serde_json::json;

use crate::upstream::CallOutcome;

/// Bytes of one answer: the guest takes no more.
const LONGEST_ANSWER: usize = 136 << 20;
/// Characters of a message that may quote the question.
const LONGEST_MESSAGE: usize = 300;

/// An answer, or what is left to do for it once the guest is ready to take it: it may have megabytes.
pub(in crate::session) enum Answer {
    Work(Work),
    /// The result of a call, which is passed on as it came.
    Result(CallOutcome),
}

/// Makes the JSON of an answer. It may take its time.
pub(in crate::session) type Work = Box<dyn FnOnce() -> Result<Vec<u8>, QuestionError> + Send>;

impl Answer {
    pub(in crate::session) fn work(
        work: impl FnOnce() -> Result<Vec<u8>, QuestionError> + Send + 'static,
    ) -> Result<Self, QuestionError> {
        Ok(Self::Work(Box::new(work)))
    }

    /// Returns an answer that is made already.
    pub(in crate::session) fn made(json: Vec<u8>) -> Self {
        Self::Work(Box::new(|| Ok(json)))
    }

    /// Refuses a result that the guest would not take.
    pub(in crate::session) fn result(outcome: CallOutcome) -> Result<Self, QuestionError> {
        match outcome.json.get().len() + br#"{"ok":}"#.len() <= LONGEST_ANSWER {
            true => Ok(Self::Result(outcome)),
            false => Err(answer_too_long()),
        }
    }
}

/// Writes `{"ok": VALUE}`, as far as the guest takes it.
pub(in crate::session) fn ok(value: &impl Serialize) -> Result<Vec<u8>, QuestionError> {
    let mut json = Bounded(br#"{"ok":"#.to_vec());
    serde_json::to_writer(&mut json, value).map_err(|_| answer_too_long())?;
    json.0.push(b'}');
    Ok(json.0)
}

/// Returns an answer that ends with bytes, as far as the guest takes it.
pub(in crate::session) fn within_limit(answer: Vec<u8>) -> Result<Vec<u8>, QuestionError> {
    if answer.len() <= LONGEST_ANSWER { Ok(answer) } else { Err(answer_too_long()) }
}

/// The bytes of an answer, which fails when it gets too long.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() >= LONGEST_ANSWER {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer_too_long() -> QuestionError {
    QuestionError::plain(format!(
        "the answer is too long: the sandbox takes at most {} MiB",
        LONGEST_ANSWER >> 20
    ))
}

/// Why a question has no answer: a sentence, with a kind where code has to tell errors apart.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(in crate::session) struct QuestionError {
    pub(in crate::session) kind: Option<&'static str>,
    pub(in crate::session) message: String,
}

impl QuestionError {
    pub(in crate::session) fn plain(message: impl Into<String>) -> Self {
        Self { kind: None, message: message.into() }
    }

    /// An error whose message may quote the question.
    pub(in crate::session) fn quoting(message: &str) -> Self {
        Self::plain(match message.char_indices().nth(LONGEST_MESSAGE) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_string(),
        })
    }

    /// An error of a question that is malformed.
    pub(super) fn unreadable(why: &str) -> Self {
        Self::quoting(&format!("the bridge cannot read this question: {why}"))
    }

    /// Writes `{"error": TEXT}`, with a `kind` where there is one.
    pub(in crate::session) fn to_json(&self) -> Vec<u8> {
        let Self { kind, message } = self;
        let json = match kind {
            None => json!({ "error": message }),
            Some(kind) => json!({ "error": message, "kind": kind }),
        };
        json.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_answer_is_as_long_as_the_guest_takes_it() {
        let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(value(&ok(&[1, 2]).unwrap()), json!({ "ok": [1, 2] }));
        let long = "x".repeat(LONGEST_ANSWER - 8);
        assert!(ok(&long).is_err());
        assert_eq!(ok(&&long[2..]).unwrap().len(), LONGEST_ANSWER - 1);
        let error = QuestionError { kind: Some("tool"), message: "m".into() };
        assert_eq!(value(&error.to_json()), json!({ "error": "m", "kind": "tool" }));
    }
}
