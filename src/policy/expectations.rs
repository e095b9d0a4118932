//! The user's own tests of a policy.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::error::{Place, PolicyError};
use super::file::explain;
use super::rules::{Annotations, Caller, Effect, Kind, Rules, ToolCall, Verdict};

/// What somebody expects of a policy.
#[derive(Debug)]
pub struct Expectations(Vec<Expectation>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    expect: Vec<Spanned<RawExpectation>>,
}

/// One `[[expect]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpectation {
    kind: Option<Kind>,
    server: Option<String>,
    tool: Option<String>,
    name: Option<String>,
    session: Option<String>,
    principal: Option<String>,
    annotations: Option<toml::Table>,
    arguments: Option<toml::Table>,
    effect: Effect,
}

#[derive(Debug)]
struct Expectation {
    line: usize,
    what: What,
    session: Option<String>,
    principal: String,
    effect: Effect,
}

#[derive(Debug)]
enum What {
    Call { server: String, tool: String, annotations: Annotations, arguments: String },
    Other { kind: Kind, server: Option<String>, name: String },
}

/// One expectation and what the policy decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub line: usize,
    /// `server.tool`, or the kind and the name of something else.
    pub what: String,
    pub expected: Effect,
    pub verdict: Verdict,
}

impl Checked {
    pub fn holds(&self) -> bool {
        self.expected == self.verdict.effect()
    }
}

impl Expectations {
    /// Reads a file of expectations.
    ///
    /// # Errors
    /// It is not TOML, or something in it is no expectation.
    pub fn parse(file: &Path, text: &str, principal: &str) -> Result<Self, PolicyError> {
        let invalid = |at, why: String| PolicyError::Invalid { place: Place::of(file, text, at), why };
        let raw: File = toml::from_str(text).map_err(|error| {
            invalid(error.span().map_or(0, |span| span.start), explain(&error, text, "expect"))
        })?;
        if raw.expect.is_empty() {
            return Err(invalid(
                0,
                "nothing is expected: write `[[expect]]` with `server`, `tool` and `effect`".to_owned(),
            ));
        }
        let read = |raw: Spanned<RawExpectation>| {
            let at = raw.span().start;
            let line = Place::of(file, text, at).line;
            raw.into_inner().read(line, principal).map_err(|why| invalid(at, why.to_owned()))
        };
        Ok(Self(raw.expect.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Compares each expectation with a policy.
    pub fn check(&self, rules: &Rules) -> Vec<Checked> {
        let check = |expectation: &Expectation| {
            let who = Caller { session: expectation.session.as_deref(), principal: &expectation.principal };
            let (what, verdict) = match &expectation.what {
                What::Call { server, tool, annotations, arguments } => {
                    let arguments = arguments.as_bytes();
                    let call = ToolCall { server, tool, annotations: *annotations, arguments };
                    (format!("{server}.{tool}"), rules.of_call(&call, &who))
                }
                What::Other { kind, server: None, name } => {
                    (format!("{kind} {name}"), rules.of(*kind, name, &who))
                }
                What::Other { kind, server: Some(server), name } => {
                    (format!("{kind} {name} of {server}"), rules.of_offer(*kind, server, name, &who))
                }
            };
            Checked { line: expectation.line, what, expected: expectation.effect, verdict }
        };
        self.0.iter().map(check).collect()
    }
}

impl RawExpectation {
    fn read(self, line: usize, principal: &str) -> Result<Expectation, &'static str> {
        let json = |table: toml::Table| serde_json::to_value(table).map_err(|_| "a value is not JSON");
        let what = match (self.kind.unwrap_or(Kind::Tool), self.server, self.tool, self.name) {
            (Kind::Tool, Some(server), Some(tool), None) => {
                let annotations: Option<Value> = self.annotations.map(json).transpose()?;
                let arguments: Option<Value> = self.arguments.map(json).transpose()?;
                What::Call {
                    server,
                    tool,
                    annotations: Annotations::of(annotations.as_ref()),
                    arguments: arguments.map_or_else(|| "{}".to_owned(), |value| value.to_string()),
                }
            }
            (Kind::Tool, ..) => {
                return Err("an expectation of a call has `server` and `tool`, and no `name`");
            }
            (kind, server @ Some(_), None, Some(name)) if kind.is_of_server() => {
                What::Other { kind, server, name }
            }
            (kind, None, None, Some(_)) if kind.is_of_server() => {
                return Err("an expectation of a resource or a prompt has `server` and `name`");
            }
            (kind, server @ None, None, Some(name)) => What::Other { kind, server, name },
            _ => return Err("this expectation has `kind` and `name`, and no `server` or `tool`"),
        };
        let principal = self.principal.unwrap_or_else(|| principal.to_owned());
        Ok(Expectation { line, what, session: self.session, principal, effect: self.effect })
    }
}
