//! What a server has to know before a request has a result. By protocol 2026-07-28 it answers with questions, and the request is made
//! again with what the person has answered: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr>.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::outcome::CallOutcome;
use crate::mcp::bounds::Bounds;

/// What is parsed of the questions of one answer.
const QUESTIONS: Bounds = Bounds { bytes: 1 << 20, values: 20_000 };
/// Bytes of what a server gives us to send back.
const LONGEST_STATE: usize = 1 << 20;

/// An answer that is no result yet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Needed<'a> {
    result_type: Option<String>,
    #[serde(borrow, default)]
    pub(super) input_requests: Option<&'a RawValue>,
    pub(super) request_state: Option<String>,
}

/// What goes with a request that is made again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Inputs {
    pub(super) responses: Map<String, Value>,
    pub(super) state: Option<String>,
}

impl Inputs {
    /// Adds them to the parameters of a request.
    pub(super) fn add_to(self, params: &mut Map<String, Value>) {
        if !self.responses.is_empty() {
            params.insert("inputResponses".into(), self.responses.into());
        }
        if let Some(state) = self.state {
            params.insert("requestState".into(), state.into());
        }
    }

    /// Returns them as the last members of an object, with the comma before them.
    pub(super) fn as_members(&self) -> String {
        let mut members = Map::new();
        self.clone().add_to(&mut members);
        let text = Value::from(members).to_string();
        match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(members) if !members.is_empty() => format!(",{members}"),
            _ => String::new(),
        }
    }
}

/// Returns the questions by their keys; none of what cannot be read.
pub(super) fn questions(raw: Option<&RawValue>) -> BTreeMap<String, Value> {
    let parsed = raw.and_then(|raw| QUESTIONS.parse(raw)).and_then(Result::ok);
    parsed.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

/// Returns what the server needs; None of a result.
pub(super) fn needed(outcome: &CallOutcome) -> Option<Needed<'_>> {
    let json = outcome.json.get();
    if json.len() > QUESTIONS.bytes + LONGEST_STATE || !json.contains("input_required") {
        return None;
    }
    let needed: Needed<'_> = serde_json::from_str(json).ok()?;
    (needed.result_type.as_deref() == Some("input_required")).then_some(needed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_needs_is_told_from_a_result() {
        let of = |json: &str| CallOutcome::new(RawValue::from_string(json.into()).unwrap(), None);
        let outcome =
            of(r#"{"resultType":"input_required","inputRequests":{"a":{"method":"m"}},"requestState":"s"}"#);
        let found = needed(&outcome).unwrap();
        assert_eq!(questions(found.input_requests)["a"]["method"], "m");
        assert_eq!(found.request_state.as_deref(), Some("s"));
        for other in [
            r#"{"content":[{"type":"text","text":"input_required"}]}"#,
            r#"{"resultType":"complete","structuredContent":{"resultType":"input_required"}}"#,
            r#"["input_required"]"#,
        ] {
            assert!(needed(&of(other)).is_none(), "{other}");
        }
        let odd = of(r#"{"resultType":"input_required","inputRequests":[7]}"#);
        assert!(questions(needed(&odd).unwrap().input_requests).is_empty());
    }

    #[test]
    fn inputs_are_members_of_the_parameters() {
        let mut inputs = Inputs::default();
        assert_eq!(inputs.as_members(), "");
        inputs.responses.insert("a".into(), json!({ "action": "accept" }));
        inputs.state = Some("s\"".into());
        let members = r#","inputResponses":{"a":{"action":"accept"}},"requestState":"s\"""#;
        assert_eq!(inputs.as_members(), members);
    }
}
