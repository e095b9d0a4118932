//! What the person has approved, and how the person is asked. Nothing that code says counts as an answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::rules::Kind;

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
/// After so many questions without a yes, whatever they were about, the person is not asked again in this run.
pub const MOST_QUESTIONS: u32 = 20;
/// Tools that are remembered. A tool is asked about again if there are more.
const MOST_TOOLS: usize = 1_000;

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject {
    pub kind: Kind,
    /// The server of a tool; empty for other kinds.
    pub server: String,
    pub name: String,
}

/// What the person approved in one session. It ends with the session.
#[derive(Debug, Default)]
pub struct Approvals {
    given: Mutex<Given>,
    /// Held while the person is asked: one form at a time.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Given {
    subjects: HashMap<Subject, OfSubject>,
    run: u32,
    /// Questions of the run since the last yes.
    without_yes: u32,
}

/// The answers about one tool, or one other thing.
#[derive(Debug, Default)]
struct OfSubject {
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
    /// The person was asked so often in this run, about anything, without a yes.
    AskedTooOften,
    /// How often the person was asked about this tool in this run, and how many of its calls were approved.
    Unknown { asked: u32, approved: u64 },
}

impl Approvals {
    /// Returns whether an earlier answer covers one more call, and counts it.
    pub fn stand(&self, run: u32, subject: &Subject) -> Standing {
        self.of(run, subject, |of_subject, without_yes| {
            if of_subject.for_session || of_subject.left > 0 {
                of_subject.left = of_subject.left.saturating_sub(1);
                of_subject.approved += 1;
                return Standing::Approved;
            }
            if of_subject.refused >= MOST_REFUSALS {
                return Standing::Refused;
            }
            if *without_yes >= MOST_QUESTIONS {
                return Standing::AskedTooOften;
            }
            Standing::Unknown { asked: of_subject.asked, approved: of_subject.approved }
        })
    }

    /// Waits until nobody else asks. What has been answered meanwhile may cover the call.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.asking.lock().await
    }

    /// Keeps an answer; returns whether it allows the call.
    pub fn keep(&self, run: u32, subject: &Subject, answer: Answer) -> bool {
        self.of(run, subject, |of_subject, without_yes| {
            of_subject.asked += 1;
            *without_yes += 1;
            match answer {
                Answer::No => {
                    of_subject.refused += 1;
                    return false;
                }
                Answer::Once => {}
                Answer::Next(calls) => of_subject.left = calls.saturating_sub(1),
                Answer::Run => of_subject.left = u64::MAX,
                Answer::Session => of_subject.for_session = true,
            }
            (of_subject.refused, of_subject.approved, *without_yes) = (0, of_subject.approved + 1, 0);
            true
        })
    }

    fn of<T>(&self, run: u32, subject: &Subject, act: impl FnOnce(&mut OfSubject, &mut u32) -> T) -> T {
        let mut given: MutexGuard<'_, Given> = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let Given { subjects, run: last, without_yes } = &mut *given;
        if *last != run {
            (*last, *without_yes) = (run, 0);
        }
        if subjects.len() >= MOST_TOOLS && !subjects.contains_key(subject) {
            subjects.clear();
        }
        let of_subject = subjects.entry(subject.clone()).or_default();
        if of_subject.run != run {
            *of_subject = OfSubject { for_session: of_subject.for_session, run, ..OfSubject::default() };
        }
        act(of_subject, without_yes)
    }
}

/// Returns the schema of the form. A question that is asked again offers the rest of the run; a call from the command line
/// is one call.
pub fn schema(asked: u32, is_in_session: bool) -> Value {
    let mut answers = vec![NO, ONCE];
    if is_in_session {
        answers.push(NEXT);
        if asked > 0 {
            answers.push(RUN);
        }
        answers.push(SESSION);
    }
    let mut properties = json!({
        ANSWER: { "type": "string", "title": "Allow it?", "enum": answers, "default": NO },
    });
    if is_in_session {
        properties[CALLS] = json!({
            "type": "integer",
            "title": "Number of calls, for \"the next calls\"",
            "minimum": 1,
            "maximum": MOST_CALLS,
            "default": NEXT_CALLS,
        });
    }
    json!({ "type": "object", "properties": properties, "required": [ANSWER] })
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

    fn tool(server: &str, name: &str) -> Subject {
        Subject { kind: Kind::Tool, server: server.into(), name: name.into() }
    }

    #[test]
    fn an_answer_covers_what_it_says_and_no_more() {
        let approvals = Approvals::default();
        let stand = |run, name| approvals.stand(run, &tool("s", name));
        assert_eq!(stand(1, "t"), Standing::Unknown { asked: 0, approved: 0 });
        assert!(approvals.keep(1, &tool("s", "t"), Answer::Next(3)));
        assert_eq!((stand(1, "t"), stand(1, "t")), (Standing::Approved, Standing::Approved));
        assert_eq!(stand(1, "t"), Standing::Unknown { asked: 1, approved: 3 });
        assert_eq!(stand(1, "u"), Standing::Unknown { asked: 0, approved: 0 });
        assert!(approvals.keep(1, &tool("s", "t"), Answer::Run));
        assert_eq!(stand(1, "t"), Standing::Approved);
        assert_eq!(stand(2, "t"), Standing::Unknown { asked: 0, approved: 0 }, "another run asks again");
        assert!(approvals.keep(2, &tool("s", "t"), Answer::Session));
        assert_eq!(stand(3, "t"), Standing::Approved);
        assert_eq!(approvals.stand(3, &tool("other", "t")), Standing::Unknown { asked: 0, approved: 0 });
        let package = Subject { kind: Kind::Package, ..tool("s", "t") };
        assert_eq!(approvals.stand(3, &package), Standing::Unknown { asked: 0, approved: 0 });
    }

    #[test]
    fn after_three_refusals_a_run_does_not_ask_again() {
        let approvals = Approvals::default();
        for _ in 0..3 {
            assert!(matches!(approvals.stand(1, &tool("s", "t")), Standing::Unknown { .. }));
            assert!(!approvals.keep(1, &tool("s", "t"), Answer::No));
        }
        assert_eq!(approvals.stand(1, &tool("s", "t")), Standing::Refused);
        assert_eq!(approvals.stand(2, &tool("s", "t")), Standing::Unknown { asked: 0, approved: 0 });
    }

    #[test]
    fn code_cannot_tire_the_person_with_many_tools() {
        let approvals = Approvals::default();
        let ask = |run, name: &str, answer| {
            let standing = approvals.stand(run, &tool("s", name));
            if standing != Standing::AskedTooOften {
                approvals.keep(run, &tool("s", name), answer);
            }
            standing
        };
        for number in 0..20 {
            assert_ne!(ask(1, &format!("t{number}"), Answer::No), Standing::AskedTooOften, "{number}");
        }
        assert_eq!(ask(1, "one more", Answer::Once), Standing::AskedTooOften);
        assert_ne!(ask(2, "one more", Answer::Once), Standing::AskedTooOften, "another run asks again");
        for number in 0..30 {
            let answer = if number % 15 == 0 { Answer::Once } else { Answer::No };
            assert_ne!(ask(3, &format!("t{number}"), answer), Standing::AskedTooOften, "a yes starts over");
        }
    }

    #[test]
    fn the_second_question_offers_the_rest_of_the_run() {
        let answers = |asked, is_in_session| {
            schema(asked, is_in_session)["properties"]["answer"]["enum"].as_array().unwrap().len()
        };
        assert_eq!((answers(0, true), answers(1, true), answers(0, false)), (4, 5, 2));
        assert!(schema(0, false)["properties"].get("calls").is_none());
    }
}
