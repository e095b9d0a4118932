//! The questions that code in the sandbox asks the bridge, and how they are answered on the wire.
//!
//! Every question is hostile input: it is read once, into a type, and what is wrong with it is said in a short sentence.

use std::collections::HashMap;
use std::io;
use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::tools::LONGEST_SOURCE;
use crate::packages::RawPython;
use crate::upstream::{CallOutcome, RawArguments, range_in};

/// Bytes of one answer: the guest takes no more.
const LONGEST_ANSWER: usize = 136 << 20;
/// Bytes of a name of a server or a tool. No real one is longer.
const LONGEST_NAME: usize = 512;
/// The most bytes of JSON for a byte of text: `\u0000`.
const ESCAPED: usize = 6;
/// Bytes of the parameters of a question, which are parsed. Those of a call are not.
const LONGEST_PARAMS: usize = 64 << 10;
/// The same for a function to save.
const LONGEST_TOOL: usize = ESCAPED * (LONGEST_SOURCE + LONGEST_NAME);
/// The same for packages to install, with what the image has.
const LONGEST_INSTALL: usize = 512 << 10;
/// Bytes of a question that are parsed in a moment.
const SHORT: usize = 64 << 10;
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
    Install(InstallQuestion),
    MissingModule(MissingModule),
    Call(Call),
    BeginArtifact(NewArtifact),
    CheckArtifact(Transfer),
    CommitArtifact(Transfer),
    AbortArtifact(Transfer),
    Artifacts,
    ReadArtifact(ArtifactPart),
    Module(ModuleName),
    FileIn(FilePiece),
    Input(InputWanted),
}

/// An artifact whose bytes will come in frames with this number.
#[derive(Debug, Deserialize)]
pub(super) struct NewArtifact {
    pub(super) transfer: u32,
    pub(super) name: String,
    pub(super) description: Option<String>,
}

/// An artifact that is being saved, and how many bytes were sent.
#[derive(Debug, Deserialize)]
pub(super) struct Transfer {
    pub(super) transfer: u32,
    #[serde(default)]
    pub(super) bytes: u64,
}

/// Part of an artifact.
#[derive(Debug, Deserialize)]
pub(super) struct ArtifactPart {
    pub(super) name: String,
    pub(super) version: Option<u32>,
    pub(super) start: u64,
    pub(super) length: u64,
}

/// A module beside the script of the command line.
#[derive(Debug, Deserialize)]
pub(super) struct ModuleName {
    pub(super) name: Name,
}

/// Part of a file for `/workspace`.
#[derive(Debug, Deserialize)]
pub(super) struct FilePiece {
    pub(super) index: usize,
    pub(super) offset: u64,
}

/// Standard input: at most so many bytes.
#[derive(Debug, Deserialize)]
pub(super) struct InputWanted {
    pub(super) bytes: u32,
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
    pub(super) name: Name,
    pub(super) source: String,
}

/// A name that is short enough to be compared with others.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // The name is not quoted: it may have megabytes.
        if name.len() <= LONGEST_NAME { Ok(Self(name)) } else { Err(too_long()) }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

fn too_long() -> String {
    format!("a name is longer than {LONGEST_NAME} bytes")
}

/// The servers of these aliases, or all.
#[derive(Debug, Deserialize)]
pub(super) struct ServerFilter {
    pub(super) aliases: Option<Vec<Name>>,
    /// Whether their descriptions are wanted, some of which are read from the catalogue.
    #[serde(default)]
    pub(super) detailed: bool,
}

/// A server by its name or alias.
#[derive(Debug, Deserialize)]
pub(super) struct OneServer {
    pub(super) server: Name,
    /// Which one is meant where the alias of one server is the name of another: code that uses documented aliases means the
    /// alias.
    #[serde(default)]
    pub(super) alias_first: bool,
}

/// A tool by its name or alias.
#[derive(Debug, Deserialize)]
pub(super) struct OneTool {
    pub(super) server: Name,
    pub(super) tool: Name,
    /// As for servers.
    #[serde(default)]
    pub(super) alias_first: bool,
}

/// One tool of a server, or all.
#[derive(Debug, Deserialize)]
pub(super) struct ToolFilter {
    pub(super) server: Name,
    pub(super) tool: Option<Name>,
    pub(super) detail: Option<String>,
}

/// A search in the documentation of all tools.
#[derive(Debug, Deserialize)]
pub(super) struct Search {
    pub(super) query: String,
    pub(super) limit: Option<i64>,
    pub(super) detail: Option<String>,
}

/// What code asks to install: requirements, the metadata of a script, or what the operator named for every session.
#[derive(Debug, Deserialize)]
pub(super) struct InstallQuestion {
    #[serde(default)]
    pub(super) requirements: Vec<String>,
    #[serde(default)]
    pub(super) upgrade: bool,
    /// The TOML of a script's metadata.
    pub(super) script: Option<String>,
    #[serde(default)]
    pub(super) with: bool,
    pub(super) python: RawPython,
    /// Names and versions of what the session has.
    #[serde(default)]
    pub(super) present: HashMap<String, String>,
}

/// A module that code could not import.
#[derive(Debug, Deserialize)]
pub(super) struct MissingModule {
    pub(super) module: String,
}

/// A call of a tool. Whether it is allowed is known before anybody looks at its arguments.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) server: Name,
    pub(super) tool: Name,
    pub(super) arguments: RawArguments,
}

/// The parameters stay text until the method is known: a generic value takes many times the bytes of its text. So does the
/// method, which may be as long.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    method: &'a RawValue,
    #[serde(borrow)]
    params: &'a RawValue,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    server: &'a RawValue,
    #[serde(borrow)]
    tool: &'a RawValue,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl GuestQuestion {
    /// Whether a question is read in a moment, so that no thread is needed for it.
    pub(super) fn is_short(json: &[u8]) -> bool {
        json.len() <= SHORT
    }

    /// Reads `{"method": NAME, "params": …}`, with the members in any order. The arguments of a call keep the permit of the
    /// question.
    pub(super) fn parse(json: Vec<u8>, permit: Option<OwnedSemaphorePermit>) -> Result<Self, QuestionError> {
        let json = String::from_utf8(json).map_err(|_| QuestionError::unreadable("it is not UTF-8"))?;
        let Envelope { method, params } = parsed(&json)?;
        let (method, params) = (method.get(), params.get());
        Ok(match method {
            r#""call""# => {
                let CallParams { server, tool, arguments } = parsed(params)?;
                let (server, tool) = (name(server)?, name(tool)?);
                let object = range_in(&json, arguments.get());
                let arguments = RawArguments::within(json, object, permit);
                let arguments = arguments.map_err(|error| QuestionError::unreadable(&error.to_string()))?;
                Self::Call(Call { server, tool, arguments })
            }
            r#""output""# => Self::Output(read(params)?),
            r#""save_tool""# => Self::SaveTool(read_up_to(LONGEST_TOOL, params)?),
            r#""list_saved_tools""# => Self::ListSavedTools,
            r#""servers""# => Self::Servers(read(params)?),
            r#""server""# => Self::Server(read(params)?),
            r#""describe""# => Self::Describe(read(params)?),
            r#""tool""# => Self::Tool(read(params)?),
            r#""tools""# => Self::Tools(read(params)?),
            r#""artifact_begin""# => Self::BeginArtifact(read(params)?),
            r#""artifact_check""# => Self::CheckArtifact(read(params)?),
            r#""artifact_commit""# => Self::CommitArtifact(read(params)?),
            r#""artifact_abort""# => Self::AbortArtifact(read(params)?),
            r#""artifacts""# => Self::Artifacts,
            r#""artifact_read""# => Self::ReadArtifact(read(params)?),
            r#""search""# => Self::Search(read(params)?),
            r#""install""# => Self::Install(read_up_to(LONGEST_INSTALL, params)?),
            r#""missing_module""# => Self::MissingModule(read(params)?),
            r#""module""# => Self::Module(read(params)?),
            r#""file_in""# => Self::FileIn(read(params)?),
            r#""input""# => Self::Input(read(params)?),
            _ => return Err(QuestionError::plain("the bridge does not know this method")),
        })
    }
}

/// Reads a name, unless it is long already as it is written.
fn name(raw: &RawValue) -> Result<Name, QuestionError> {
    if raw.get().len() > ESCAPED * LONGEST_NAME + 2 {
        return Err(QuestionError::unreadable(&too_long()));
    }
    parsed(raw.get())
}

fn read<T: DeserializeOwned>(params: &str) -> Result<T, QuestionError> {
    read_up_to(LONGEST_PARAMS, params)
}

fn read_up_to<T: DeserializeOwned>(most: usize, params: &str) -> Result<T, QuestionError> {
    if params.len() > most {
        let why = format!("its parameters have {} KiB, {} are the most", params.len() >> 10, most >> 10);
        return Err(QuestionError::unreadable(&why));
    }
    parsed(params)
}

fn parsed<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, QuestionError> {
    serde_json::from_str(json).map_err(|error| QuestionError::unreadable(&error.to_string()))
}

/// An answer, or what is left to do for it once the guest is ready to take it: it may have megabytes.
pub(super) enum Answer {
    Work(Work),
    /// The result of a call, which is passed on as it came.
    Result(CallOutcome),
}

/// Makes the JSON of an answer. It may take its time.
pub(super) type Work = Box<dyn FnOnce() -> Result<Vec<u8>, QuestionError> + Send>;

impl Answer {
    pub(super) fn work(
        work: impl FnOnce() -> Result<Vec<u8>, QuestionError> + Send + 'static,
    ) -> Result<Self, QuestionError> {
        Ok(Self::Work(Box::new(work)))
    }

    /// Returns an answer that is made already.
    pub(super) fn made(json: Vec<u8>) -> Self {
        Self::Work(Box::new(|| Ok(json)))
    }

    /// Refuses a result that the guest would not take.
    pub(super) fn result(outcome: CallOutcome) -> Result<Self, QuestionError> {
        match outcome.json.get().len() + br#"{"ok":}"#.len() <= LONGEST_ANSWER {
            true => Ok(Self::Result(outcome)),
            false => Err(answer_too_long()),
        }
    }
}

/// Writes `{"ok": VALUE}`, as far as the guest takes it.
pub(super) fn ok(value: &impl Serialize) -> Result<Vec<u8>, QuestionError> {
    let mut json = Bounded(br#"{"ok":"#.to_vec());
    serde_json::to_writer(&mut json, value).map_err(|_| answer_too_long())?;
    json.0.push(b'}');
    Ok(json.0)
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

    fn unreadable(why: &str) -> Self {
        Self::quoting(&format!("the bridge cannot read this question: {why}"))
    }

    /// Writes `{"error": TEXT}`, with a `kind` where there is one.
    pub(super) fn to_json(&self) -> Vec<u8> {
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

    fn error(json: String) -> String {
        GuestQuestion::parse(json.into_bytes(), None).unwrap_err().message
    }

    #[test]
    fn nothing_long_is_parsed_into_values() {
        let long = "x".repeat(60 << 20);
        let zeros = "0,".repeat(10 << 20);
        for (json, why) in [
            (format!(r#"{{"method":"{long}","params":{{}}}}"#), "does not know this method"),
            (
                format!(r#"{{"method":"describe","params":{{"server":"{long}"}}}}"#),
                "its parameters have 61440 KiB",
            ),
            (format!(r#"{{"method":"servers","params":{{"aliases":[{zeros}0]}}}}"#), "its parameters have"),
            (format!(r#"{{"method":"search","params":{{"query":"{long}"}}}}"#), "its parameters have"),
            (
                format!(r#"{{"method":"save_tool","params":{{"name":"f","source":"{long}"}}}}"#),
                "61440 KiB, 1539 are the most",
            ),
            (
                format!(r#"{{"method":"call","params":{{"server":"{long}","tool":"t","arguments":{{}}}}}}"#),
                "a name is longer than 512 bytes",
            ),
            (
                format!(
                    r#"{{"method":"call","params":{{"server":"s","tool":"{}","arguments":{{}}}}}}"#,
                    &long[..513]
                ),
                "a name is longer than 512 bytes",
            ),
            (
                format!(r#"{{"method":"tool","params":{{"server":"s","tool":"{}"}}}}"#, &long[..513]),
                "a name is longer than 512 bytes",
            ),
            (
                format!(r#"{{"method":"servers","params":{{"aliases":["{}"]}}}}"#, &long[..513]),
                "a name is longer than 512 bytes",
            ),
        ] {
            let message = error(json);
            assert!(message.contains(why) && message.len() < 200, "{message}");
        }
    }

    #[test]
    fn the_arguments_of_a_call_stay_text() {
        let json = "{\"params\":{\"tool\":\"t\",\"arguments\":{\"a\":\n[1.10]},\"server\":\"\\u0073\"},\"method\":\"call\"}";
        let Ok(GuestQuestion::Call(call)) = GuestQuestion::parse(json.into(), None) else { panic!("{json}") };
        assert_eq!((&*call.server, &*call.tool), ("s", "t"));
        assert_eq!(call.arguments.as_bytes(), br#"{"a": [1.10]}"#);
        for other in ["[]", "null", r#""x""#] {
            let json =
                format!(r#"{{"method":"call","params":{{"server":"s","tool":"t","arguments":{other}}}}}"#);
            assert!(error(json).contains("the arguments must be an object"), "{other}");
        }
    }

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
