//! What the person has approved, and how the person is asked. Nothing that code says counts as an answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// The fields of the form.
const ANSWER: &str = "answer";
const CALLS: &str = "calls";
/// The answers, as a client shows them.
const NO: &str = "no";
const ONCE: &str = "yes, this call";
const NEXT: &str = "yes, this and the next calls in this run";
const RUN: &str = "yes, all further calls in this run";
const SESSION: &str = "yes, for this session";
/// How many calls "the next calls" are if the person does not say it, and at most.
const NEXT_CALLS: u64 = 10;
const MOST_CALLS: u64 = 1_000;
/// After so many answers that are not yes, the person is not asked about the tool again in this run.
const MOST_REFUSALS: u32 = 3;
/// Tools that are remembered. A tool is asked about again if there are more.
const MOST_TOOLS: usize = 1_000;

/// What the person approved in one session. It ends with the session.
#[derive(Debug, Default)]
pub struct Approvals {
    tools: Mutex<HashMap<(String, String), Tool>>,
    /// Held while the person is asked: one form at a time.
    asking: tokio::sync::Mutex<()>,
}

/// The answers about one tool.
#[derive(Debug, Default)]
struct Tool {
    for_session: bool,
    run: u32,
    /// Of the current run.
    left: u64,
    asked: u32,
    approved: u64,
    refused: u32,
}

/// What the person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Once,
    /// This call and more of them in this run.
    Next(u64),
    Run,
    Session,
    No,
}

impl Answer {
    /// Reads the answer to a form. Only an answer that is named is an approval: some clients accept a form before anybody has
    /// read it.
    pub fn read(answer: &Value) -> Self {
        if answer["action"] != "accept" {
            return Self::No;
        }
        let content = &answer["content"];
        match content[ANSWER].as_str() {
            Some(ONCE) => Self::Once,
            Some(NEXT) => match content.get(CALLS).filter(|calls| !calls.is_null()) {
                None => Self::Next(NEXT_CALLS),
                Some(calls) => match calls.as_u64() {
                    Some(calls @ 1..=MOST_CALLS) => Self::Next(calls),
                    _ => Self::Once,
                },
            },
            Some(RUN) => Self::Run,
            Some(SESSION) => Self::Session,
            _ => Self::No,
        }
    }
}

/// As the audit log writes it.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once => f.write_str("once"),
            Self::Next(calls) => write!(f, "next {calls}"),
            Self::Run => f.write_str("run"),
            Self::Session => f.write_str("session"),
            Self::No => f.write_str("no"),
        }
    }
}

/// Whether a call needs a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// An earlier answer covers it.
    Approved,
    /// The person has said no so often that asking again would only tire.
    Refused,
    /// How often the person was asked about this tool in this run, and how many of its calls were approved.
    Unknown { asked: u32, approved: u64 },
}

impl Approvals {
    /// Returns whether an earlier answer covers one more call, and counts it.
    pub fn stand(&self, run: u32, server: &str, tool: &str) -> Standing {
        self.of(run, server, tool, |tool| {
            if tool.for_session || tool.left > 0 {
                tool.left = tool.left.saturating_sub(1);
                tool.approved += 1;
                return Standing::Approved;
            }
            if tool.refused >= MOST_REFUSALS {
                return Standing::Refused;
            }
            Standing::Unknown { asked: tool.asked, approved: tool.approved }
        })
    }

    /// Waits until nobody else asks. What has been answered meanwhile may cover the call.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.asking.lock().await
    }

    /// Keeps an answer; returns whether it allows the call.
    pub fn keep(&self, run: u32, server: &str, tool: &str, answer: Answer) -> bool {
        self.of(run, server, tool, |tool| {
            tool.asked += 1;
            match answer {
                Answer::No => {
                    tool.refused += 1;
                    return false;
                }
                Answer::Once => {}
                Answer::Next(calls) => tool.left = calls.saturating_sub(1),
                Answer::Run => tool.left = u64::MAX,
                Answer::Session => tool.for_session = true,
            }
            (tool.refused, tool.approved) = (0, tool.approved + 1);
            true
        })
    }

    fn of<T>(&self, run: u32, server: &str, tool: &str, act: impl FnOnce(&mut Tool) -> T) -> T {
        let mut tools: MutexGuard<'_, HashMap<_, _>> =
            self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (server.to_owned(), tool.to_owned());
        if tools.len() >= MOST_TOOLS && !tools.contains_key(&name) {
            tools.clear();
        }
        let tool = tools.entry(name).or_default();
        if tool.run != run {
            *tool = Tool { for_session: tool.for_session, run, ..Tool::default() };
        }
        act(tool)
    }
}

/// Returns the schema of the form. A question that is asked again offers the rest of the run.
pub fn schema(asked: u32) -> Value {
    let mut answers = vec![NO, ONCE, NEXT];
    if asked > 0 {
        answers.push(RUN);
    }
    answers.push(SESSION);
    json!({
        "type": "object",
        "properties": {
            ANSWER: { "type": "string", "title": "Allow it?", "enum": answers, "default": NO },
            CALLS: {
                "type": "integer",
                "title": "Number of calls, for \"the next calls\"",
                "minimum": 1,
                "maximum": MOST_CALLS,
                "default": NEXT_CALLS,
            },
        },
        "required": [ANSWER],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(content: Value) -> Answer {
        Answer::read(&json!({ "action": "accept", "content": content }))
    }

    #[test]
    fn only_a_named_answer_approves() {
        assert_eq!(accepted(json!({ "answer": ONCE })), Answer::Once);
        assert_eq!(accepted(json!({ "answer": NEXT })), Answer::Next(10));
        assert_eq!(accepted(json!({ "answer": NEXT, "calls": 3 })), Answer::Next(3));
        assert_eq!(accepted(json!({ "answer": NEXT, "calls": -3 })), Answer::Once);
        assert_eq!(accepted(json!({ "answer": NEXT, "calls": 1e9 })), Answer::Once);
        assert_eq!(accepted(json!({ "answer": SESSION })), Answer::Session);
        for no in [
            json!({}),
            json!({ "answer": NO }),
            json!({ "answer": true }),
            json!({ "answer": "yes" }),
            json!(null),
        ] {
            assert_eq!(accepted(no.clone()), Answer::No, "{no}");
        }
        for action in ["decline", "cancel", ""] {
            let answer = json!({ "action": action, "content": { "answer": SESSION } });
            assert_eq!(Answer::read(&answer), Answer::No);
        }
        assert_eq!(Answer::read(&Value::Null), Answer::No);
    }

    #[test]
    fn an_answer_covers_what_it_says_and_no_more() {
        let approvals = Approvals::default();
        let stand = |run, tool| approvals.stand(run, "s", tool);
        assert_eq!(stand(1, "t"), Standing::Unknown { asked: 0, approved: 0 });
        assert!(approvals.keep(1, "s", "t", Answer::Next(3)));
        assert_eq!((stand(1, "t"), stand(1, "t")), (Standing::Approved, Standing::Approved));
        assert_eq!(stand(1, "t"), Standing::Unknown { asked: 1, approved: 3 });
        assert_eq!(stand(1, "u"), Standing::Unknown { asked: 0, approved: 0 });
        assert!(approvals.keep(1, "s", "t", Answer::Run));
        assert_eq!(stand(1, "t"), Standing::Approved);
        assert_eq!(stand(2, "t"), Standing::Unknown { asked: 0, approved: 0 }, "another run asks again");
        assert!(approvals.keep(2, "s", "t", Answer::Session));
        assert_eq!(stand(3, "t"), Standing::Approved);
        assert_eq!(approvals.stand(3, "other", "t"), Standing::Unknown { asked: 0, approved: 0 });
    }

    #[test]
    fn after_three_refusals_a_run_does_not_ask_again() {
        let approvals = Approvals::default();
        for _ in 0..3 {
            assert!(matches!(approvals.stand(1, "s", "t"), Standing::Unknown { .. }));
            assert!(!approvals.keep(1, "s", "t", Answer::No));
        }
        assert_eq!(approvals.stand(1, "s", "t"), Standing::Refused);
        assert_eq!(approvals.stand(2, "s", "t"), Standing::Unknown { asked: 0, approved: 0 });
    }

    #[test]
    fn the_second_question_offers_the_rest_of_the_run() {
        let answers = |asked| schema(asked)["properties"]["answer"]["enum"].as_array().unwrap().len();
        assert_eq!((answers(0), answers(1)), (4, 5));
    }
}
