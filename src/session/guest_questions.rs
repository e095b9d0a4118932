//! The questions that code in the sandbox asks the bridge, and how they are answered on the wire.
//!
//! Every question is hostile input: it is read once, into a type, and what is wrong with it is said in a short sentence.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Bytes of one answer: the guest takes no more.
const LONGEST_ANSWER: usize = 136 << 20;
/// Characters of a message that may quote the question.
const LONGEST_MESSAGE: usize = 300;

/// A question of the guest; `src/guest/FRAMES.md` has the table.
#[derive(Debug)]
pub(super) enum GuestQuestion {
    Output(OutputPart),
    SaveTool(ToolSource),
    ListSavedTools,
    Servers(ServerFilter),
    Server(OneServer),
    Describe(OneServer),
    Tool(OneTool),
    Tools(ToolFilter),
    Search(Search),
    Call(Call),
}

/// Part of the output of an earlier run.
#[derive(Debug, Deserialize)]
pub(super) struct OutputPart {
    pub(super) run_id: u32,
    pub(super) stream: Option<String>,
    #[serde(default)]
    pub(super) start: u64,
    pub(super) length: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolSource {
    pub(super) name: String,
    pub(super) source: String,
}

/// The servers of these aliases, or all.
#[derive(Debug, Deserialize)]
pub(super) struct ServerFilter {
    pub(super) aliases: Option<Vec<String>>,
}

/// A server by its name or alias.
#[derive(Debug, Deserialize)]
pub(super) struct OneServer {
    pub(super) server: String,
    /// Which one is meant where the alias of one server is the name of another: code that uses documented aliases means the
    /// alias.
    #[serde(default)]
    pub(super) alias_first: bool,
}

/// A tool by its name or alias.
#[derive(Debug, Deserialize)]
pub(super) struct OneTool {
    pub(super) server: String,
    pub(super) tool: String,
    /// As for servers.
    #[serde(default)]
    pub(super) alias_first: bool,
}

/// One tool of a server, or all.
#[derive(Debug, Deserialize)]
pub(super) struct ToolFilter {
    pub(super) server: String,
    pub(super) tool: Option<String>,
    pub(super) detail: Option<String>,
}

/// A search in the documentation of all tools.
#[derive(Debug, Deserialize)]
pub(super) struct Search {
    pub(super) query: String,
    pub(super) limit: Option<i64>,
    pub(super) detail: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Call {
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
}

/// The parameters stay text until the method is known: a generic value takes many times the bytes of its text.
#[derive(Deserialize)]
struct Envelope<'a> {
    method: String,
    #[serde(borrow)]
    params: &'a RawValue,
}

impl GuestQuestion {
    /// Reads `{"method": NAME, "params": …}`, with the members in any order.
    pub(super) fn parse(json: &[u8]) -> Result<Self, QuestionError> {
        let Envelope { method, params } =
            serde_json::from_slice(json).map_err(|error| QuestionError::malformed(&error))?;
        let params = params.get();
        Ok(match method.as_str() {
            "output" => Self::Output(read(params)?),
            "save_tool" => Self::SaveTool(read(params)?),
            "list_saved_tools" => Self::ListSavedTools,
            "servers" => Self::Servers(read(params)?),
            "server" => Self::Server(read(params)?),
            "describe" => Self::Describe(read(params)?),
            "tool" => Self::Tool(read(params)?),
            "tools" => Self::Tools(read(params)?),
            "search" => Self::Search(read(params)?),
            "call" => Self::Call(read(params)?),
            _ => return Err(QuestionError::plain("the bridge does not know this method")),
        })
    }
}

fn read<T: DeserializeOwned>(params: &str) -> Result<T, QuestionError> {
    serde_json::from_str(params).map_err(|error| QuestionError::malformed(&error))
}

#[derive(Debug)]
pub(super) enum Answer {
    Value(Value),
    /// JSON that is passed on as it came.
    Raw(Box<RawValue>),
}

/// Why a question has no answer: a sentence, with a kind where code has to tell errors apart.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct QuestionError {
    pub(super) kind: Option<&'static str>,
    pub(super) message: String,
}

impl QuestionError {
    pub(super) fn plain(message: impl Into<String>) -> Self {
        Self { kind: None, message: message.into() }
    }

    /// An error whose message may quote the question.
    pub(super) fn quoting(message: &str) -> Self {
        Self::plain(match message.char_indices().nth(LONGEST_MESSAGE) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_string(),
        })
    }

    fn malformed(error: &serde_json::Error) -> Self {
        Self::quoting(&format!("the bridge cannot read this question: {error}"))
    }
}

/// Writes an answer as `{"ok": VALUE}` or `{"error": TEXT}`, the latter with a `kind` where there is one.
pub(super) fn encode(answer: Result<Answer, QuestionError>) -> Vec<u8> {
    let json = match answer {
        Ok(Answer::Raw(json)) => [br#"{"ok":"#, json.get().as_bytes(), b"}"].concat(),
        Ok(Answer::Value(value)) => json!({ "ok": value }).to_string().into_bytes(),
        Err(QuestionError { kind: None, message }) => json!({ "error": message }).to_string().into_bytes(),
        Err(QuestionError { kind, message }) => {
            json!({ "error": message, "kind": kind }).to_string().into_bytes()
        }
    };
    if json.len() <= LONGEST_ANSWER {
        return json;
    }
    let message = format!(
        "the answer has {} MiB, the sandbox takes at most {} MiB",
        json.len() >> 20,
        LONGEST_ANSWER >> 20
    );
    json!({ "error": message }).to_string().into_bytes()
}
