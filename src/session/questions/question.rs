//! The questions that code in the sandbox asks the bridge.
//!
//! Every question is hostile input: it is read once, into a type, and what is wrong with it is said in a short sentence.

use std::collections::HashMap;

use codebridge_runtimes::exec::visible_line;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::answer::QuestionError;
use super::name::{LONGEST_NAME, Name, too_long};
use super::offers::{Completion, OffersWanted, PromptWanted, ResourceWanted};
use crate::packages::RawPython;
use crate::saved::{LONGEST_DETAILS, LONGEST_EXAMPLE, LONGEST_SOURCE, RawDetails};
use crate::upstream::{RawArguments, range_in};
use crate::workflows::{LONGEST_RESULT, StepId};

/// The most bytes of JSON for a byte of text: `\u0000`.
const ESCAPED: usize = 6;
/// Bytes of the parameters of a question, which are parsed. Those of a call are not.
const LONGEST_PARAMS: usize = 64 << 10;
/// The same for a function to save.
const LONGEST_TOOL: usize = ESCAPED * (LONGEST_SOURCE + LONGEST_NAME + LONGEST_DETAILS + LONGEST_EXAMPLE);
/// The same for packages to install, with what the image has.
const LONGEST_INSTALL: usize = 512 << 10;
/// The same for the arguments of a prompt.
const LONGEST_PROMPT: usize = 1 << 20;
/// The same for the result of a step. One that is too long for a journal is refused there, in words of its own.
const LONGEST_STEP: usize = 2 * LONGEST_RESULT;
/// Characters of the message of progress that are shown.
const LONGEST_PROGRESS: usize = 200;
/// Bytes of a question that are parsed in a moment.
const SHORT: usize = 64 << 10;

/// A question of the guest; `src/guest/FRAMES.md` has the table.
#[derive(Debug)]
pub(in crate::session) enum GuestQuestion {
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
    ReadResource(ResourceWanted),
    GetPrompt(PromptWanted),
    Complete(Completion),
    Offers(OffersWanted),
    BeginArtifact(NewArtifact),
    CheckArtifact(Transfer),
    CommitArtifact(Transfer),
    AbortArtifact(Transfer),
    Artifacts,
    ReadArtifact(ArtifactPart),
    Module(ModuleName),
    Runs,
    Progress(ReportedProgress),
    FileIn(FilePiece),
    Input(InputWanted),
    BeginStep(Step),
    FinishStep(FinishedStep),
    FailStep(FailedStep),
}

/// A step of a workflow.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct Step {
    name: Name,
    key: Option<Name>,
    number: u32,
    /// The hash of its arguments, where they can be compared.
    arguments: Option<Name>,
}

impl Step {
    pub(in crate::session) fn id(&self) -> StepId {
        let text = |name: &Name| name.to_string();
        StepId { name: text(&self.name), key: self.key.as_ref().map(text), number: self.number }
    }

    pub(in crate::session) fn arguments(&self) -> Option<&str> {
        self.arguments.as_deref()
    }
}

#[derive(Debug, Deserialize)]
pub(in crate::session) struct FinishedStep {
    pub(in crate::session) step: Step,
    pub(in crate::session) result: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
pub(in crate::session) struct FailedStep {
    pub(in crate::session) step: Step,
    pub(in crate::session) attempt: u32,
    pub(in crate::session) error: String,
}

/// An artifact whose bytes will come in frames with this number.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct NewArtifact {
    pub(in crate::session) transfer: u32,
    pub(in crate::session) name: String,
    pub(in crate::session) description: Option<String>,
}

/// An artifact that is being saved, and how many bytes were sent.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct Transfer {
    pub(in crate::session) transfer: u32,
    #[serde(default)]
    pub(in crate::session) bytes: u64,
}

/// Part of an artifact.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct ArtifactPart {
    pub(in crate::session) name: String,
    pub(in crate::session) version: Option<u32>,
    pub(in crate::session) start: u64,
    pub(in crate::session) length: u64,
}

/// The progress that code reports of itself.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct ReportedProgress {
    pub(in crate::session) done: f64,
    pub(in crate::session) total: Option<f64>,
    pub(in crate::session) message: Option<String>,
}

impl ReportedProgress {
    /// Returns it in one line: `3/10 files`.
    pub(in crate::session) fn text(&self) -> String {
        let Self { done, total, message } = self;
        let total = total.map_or_else(String::new, |total| format!("/{total}"));
        let message: String = message.iter().flat_map(|text| text.chars()).take(LONGEST_PROGRESS).collect();
        visible_line(format!("{done}{total} {message}").trim_end())
    }
}

/// A module beside the script of the command line.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct ModuleName {
    pub(in crate::session) name: Name,
}

/// Part of a file for `/workspace`.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct FilePiece {
    pub(in crate::session) index: usize,
    pub(in crate::session) offset: u64,
}

/// Standard input: at most so many bytes.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct InputWanted {
    pub(in crate::session) bytes: u32,
}

/// Part of the output of an earlier run.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct OutputPart {
    pub(in crate::session) run_id: u32,
    pub(in crate::session) stream: Option<String>,
    #[serde(default)]
    pub(in crate::session) start: u64,
    pub(in crate::session) length: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(in crate::session) struct ToolSource {
    pub(in crate::session) name: Name,
    pub(in crate::session) source: String,
    #[serde(default)]
    pub(in crate::session) details: RawDetails,
    pub(in crate::session) example: Option<String>,
}

/// The servers of these aliases, or all.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct ServerFilter {
    pub(in crate::session) aliases: Option<Vec<Name>>,
    /// Whether their descriptions are wanted, some of which are read from the catalogue.
    #[serde(default)]
    pub(in crate::session) detailed: bool,
}

/// A server by its name or alias.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct OneServer {
    pub(in crate::session) server: Name,
    /// Which one is meant where the alias of one server is the name of another: code that uses documented aliases means the
    /// alias.
    #[serde(default)]
    pub(in crate::session) alias_first: bool,
}

/// A tool by its name or alias.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct OneTool {
    pub(in crate::session) server: Name,
    pub(in crate::session) tool: Name,
    /// As for servers.
    #[serde(default)]
    pub(in crate::session) alias_first: bool,
}

/// One tool of a server, or all.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct ToolFilter {
    pub(in crate::session) server: Name,
    pub(in crate::session) tool: Option<Name>,
    pub(in crate::session) detail: Option<String>,
}

/// A search in the documentation of all tools.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct Search {
    pub(in crate::session) query: String,
    pub(in crate::session) limit: Option<i64>,
    pub(in crate::session) detail: Option<String>,
}

/// What code asks to install: requirements, the metadata of a script, or what the operator named for every session.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct InstallQuestion {
    #[serde(default)]
    pub(in crate::session) requirements: Vec<String>,
    #[serde(default)]
    pub(in crate::session) upgrade: bool,
    /// The TOML of a script's metadata.
    pub(in crate::session) script: Option<String>,
    #[serde(default)]
    pub(in crate::session) with: bool,
    pub(in crate::session) python: RawPython,
    /// Names and versions of what the session has.
    #[serde(default)]
    pub(in crate::session) present: HashMap<String, String>,
}

/// A module that code could not import.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct MissingModule {
    pub(in crate::session) module: String,
}

/// A call of a tool. Whether it is allowed is known before anybody looks at its arguments.
#[derive(Debug)]
pub(in crate::session) struct Call {
    pub(in crate::session) server: Name,
    pub(in crate::session) tool: Name,
    pub(in crate::session) arguments: RawArguments,
    /// The line of the current code that makes the call, as the sandbox says.
    pub(in crate::session) line: Option<u32>,
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
    #[serde(default)]
    line: Option<u32>,
}

impl GuestQuestion {
    /// Whether a question is read in a moment, so that no thread is needed for it.
    pub(in crate::session) fn is_short(json: &[u8]) -> bool {
        json.len() <= SHORT
    }

    /// Reads `{"method": NAME, "params": …}`, with the members in any order. The arguments of a call keep the permit of the
    /// question.
    pub(in crate::session) fn parse(
        json: Vec<u8>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, QuestionError> {
        let json = String::from_utf8(json).map_err(|_| QuestionError::unreadable("it is not UTF-8"))?;
        let Envelope { method, params } = parsed(&json)?;
        let (method, params) = (method.get(), params.get());
        Ok(match method {
            r#""call""# => {
                let CallParams { server, tool, arguments, line } = parsed(params)?;
                let (server, tool) = (name(server)?, name(tool)?);
                let object = range_in(&json, arguments.get());
                let arguments = RawArguments::within(json, object, permit);
                let arguments = arguments.map_err(|error| QuestionError::unreadable(&error.to_string()))?;
                Self::Call(Call { server, tool, arguments, line })
            }
            r#""output""# => Self::Output(read(params)?),
            r#""save_tool""# => Self::SaveTool(read_up_to(LONGEST_TOOL, params)?),
            r#""list_saved_tools""# => Self::ListSavedTools,
            r#""servers""# => Self::Servers(read(params)?),
            r#""server""# => Self::Server(read(params)?),
            r#""describe""# => Self::Describe(read(params)?),
            r#""tool""# => Self::Tool(read(params)?),
            r#""tools""# => Self::Tools(read(params)?),
            r#""read_resource""# => Self::ReadResource(read(params)?),
            r#""get_prompt""# => Self::GetPrompt(read_up_to(LONGEST_PROMPT, params)?),
            r#""complete""# => Self::Complete(read(params)?),
            r#""offers""# => Self::Offers(read(params)?),
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
            r#""runs""# => Self::Runs,
            r#""progress""# => Self::Progress(read(params)?),
            r#""file_in""# => Self::FileIn(read(params)?),
            r#""input""# => Self::Input(read(params)?),
            r#""step_begin""# => Self::BeginStep(read(params)?),
            r#""step_finish""# => Self::FinishStep(read_up_to(LONGEST_STEP, params)?),
            r#""step_fail""# => Self::FailStep(read(params)?),
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

#[cfg(test)]
mod tests {
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
                "61440 KiB, 1923 are the most",
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
}
