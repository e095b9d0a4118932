//! What is recorded.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};

/// Characters of a name, and of other texts.
const LONGEST_NAME: usize = 200;
const LONGEST_TEXT: usize = 500;

/// What holds for a run and all of its calls. Nothing of it comes from the sandbox.
#[derive(Debug, Default, Serialize)]
pub struct RunFacts {
    /// BRIDGE-NUMBER; None for what never began, and for the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "name_if_any")]
    pub session: Option<Arc<str>>,
    /// Who the client says that it is.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "name_if_any")]
    pub client: Option<Arc<str>>,
    #[serde(serialize_with = "name")]
    pub principal: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Arc<str>>,
    /// As the user names it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "name_if_any")]
    pub image: Option<Arc<str>>,
    /// It may become known while the run is under way.
    #[serde(skip_serializing_if = "is_unknown", serialize_with = "known")]
    pub image_digest: Arc<OnceLock<String>>,
    /// SHA-256 of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_sha256: Option<String>,
    #[serde(skip)]
    pub counts: RunCounts,
}

impl RunFacts {
    /// Returns what holds for a command of the command line.
    pub fn of_command(client: &str, principal: Arc<str>) -> Self {
        Self { client: Some(client.into()), principal, ..Self::default() }
    }
}

/// How many calls there were in a run.
#[derive(Debug, Default)]
pub struct RunCounts {
    pub(super) calls: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl RunCounts {
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

fn is_unknown(digest: &OnceLock<String>) -> bool {
    digest.get().is_none()
}

fn known<S: Serializer>(digest: &OnceLock<String>, serializer: S) -> Result<S::Ok, S::Error> {
    digest.get().serialize(serializer)
}

/// A run that begins.
#[derive(Debug, Serialize)]
pub struct RunStart {
    #[serde(flatten)]
    pub facts: Arc<RunFacts>,
    /// The servers that it may call.
    #[serde(serialize_with = "names")]
    pub servers: Vec<Arc<str>>,
    /// Whether its session starts with it.
    pub new_session: bool,
    pub timeout_seconds: f64,
}

/// A run that has ended, or never began.
#[derive(Debug, Serialize)]
pub struct RunEnd {
    #[serde(flatten)]
    pub facts: Arc<RunFacts>,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(serialize_with = "text_if_any", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub milliseconds: f64,
    /// Bytes of standard output and standard error.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Calls that were made, and those that were refused; filled in when the line is recorded.
    pub calls: u64,
    pub refused: u64,
    /// Refusals beyond those that have lines.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused_without_line: u64,
}

/// A call of a tool, the use of a resource or a prompt, or one that is refused.
#[derive(Debug, Clone, Serialize)]
pub struct Call {
    #[serde(flatten)]
    pub facts: Arc<RunFacts>,
    #[serde(serialize_with = "name")]
    pub server: Arc<str>,
    /// None for a tool, else `resource` or `prompt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name at the server, or the URI of a resource.
    #[serde(serialize_with = "name_of_string")]
    pub tool: String,
    /// The name that code used, if it is another.
    #[serde(serialize_with = "name_of_string_if_any", skip_serializing_if = "Option::is_none")]
    pub called_as: Option<String>,
    /// What was decided; None if it did not come to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
    /// FILE:LINE
    #[serde(serialize_with = "name_of_string_if_any", skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Bytes of the arguments and of the result.
    pub sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    #[serde(serialize_with = "text_if_any", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A package, an artifact or a share that is denied.
#[derive(Debug, Serialize)]
pub struct Denied {
    #[serde(flatten)]
    pub facts: Arc<RunFacts>,
    pub kind: String,
    #[serde(serialize_with = "name_of_string")]
    pub name: String,
    pub verdict: &'static str,
    #[serde(serialize_with = "name_of_string_if_any", skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(serialize_with = "text")]
    pub error: String,
}

/// Something that lasts, and that the person has approved.
#[derive(Debug, Serialize)]
pub struct Approved {
    #[serde(flatten)]
    pub facts: Arc<RunFacts>,
    pub kind: String,
    /// The server, for what belongs to one.
    #[serde(serialize_with = "name_of_string_if_any", skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(serialize_with = "name_of_string")]
    pub name: String,
    pub verdict: &'static str,
    /// What follows from it.
    pub outcome: &'static str,
}

impl Approved {
    /// Returns the approval of something, for good or for as long as the bridge runs.
    pub fn new(facts: Arc<RunFacts>, kind: &str, name: &str, outcome: &'static str) -> Self {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Self { facts, kind, server: None, name, verdict: "approved", outcome }
    }

    /// Names the server to which it belongs.
    pub fn of(self, server: &str) -> Self {
        Self { server: Some(server.to_owned()), ..self }
    }
}

/// An answer that somebody gave who is not at the client of the run.
#[derive(Debug, Serialize)]
pub struct Given {
    #[serde(flatten)]
    pub facts: Arc<RunFacts>,
    /// The server that asks, or `codebridge`.
    #[serde(serialize_with = "name")]
    pub server: Arc<str>,
    #[serde(serialize_with = "text")]
    pub answer: String,
    /// Who gave it.
    #[serde(serialize_with = "name_of_string")]
    pub by: String,
}

/// A file that was removed because the log had become too large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Pruned {
    pub file: String,
    /// The number and the hash of its last line.
    pub n: u64,
    pub hash: String,
}

/// What a line is about.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event {
    /// The first line of each file.
    Open {
        bridge: String,
        part: u32,
        version: &'static str,
        pid: u32,
        mode: &'static str,
    },
    RunStart(RunStart),
    Run(RunEnd),
    CallStart(Call),
    Call(Call),
    Denied(Denied),
    Approved(Approved),
    Answer(Given),
    /// Lines that could not be written.
    Lost {
        lines: u64,
        #[serde(serialize_with = "text")]
        why: String,
    },
    Pruned {
        files: Vec<Pruned>,
    },
    /// The bridge has ended as it should.
    Close,
}

/// Removes credentials.
pub type Mask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// A text that is recorded in full.
#[derive(Debug)]
pub struct Content {
    pub field: &'static str,
    pub text: String,
    /// Whether it is JSON, which a line has as it is.
    pub is_json: bool,
    /// Whether many lines have the same: it is kept once beside them.
    pub is_shared: bool,
}

impl Content {
    pub fn json(field: &'static str, text: String) -> Self {
        Self { field, text, is_json: true, is_shared: false }
    }

    pub fn text(field: &'static str, text: String) -> Self {
        Self { field, text, is_json: false, is_shared: false }
    }

    pub fn shared(field: &'static str, text: String) -> Self {
        Self { field, text, is_json: true, is_shared: true }
    }
}

/// The texts of a line.
#[derive(Default)]
pub struct Contents {
    pub texts: Vec<Content>,
    pub mask: Option<Mask>,
}

impl Contents {
    /// Returns the bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.texts.iter().map(|content| content.text.len()).sum()
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({} bytes)", self.bytes())
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Cuts a text after so many characters.
fn cut(text: &str, most: usize) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

fn name<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    cut(name, LONGEST_NAME).serialize(serializer)
}

fn name_if_any<S: Serializer>(name: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(|name| cut(name, LONGEST_NAME)).serialize(serializer)
}

fn name_of_string<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    cut(name, LONGEST_NAME).serialize(serializer)
}

fn name_of_string_if_any<S: Serializer>(name: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(|name| cut(name, LONGEST_NAME)).serialize(serializer)
}

/// At most a hundred.
fn names<S: Serializer>(names: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter().take(100).map(|name| cut(name, LONGEST_NAME)))
}

fn text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    cut(text, LONGEST_TEXT).serialize(serializer)
}

fn text_if_any<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_ref().map(|text| cut(text, LONGEST_TEXT)).serialize(serializer)
}
