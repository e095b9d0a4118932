//! The text of a policy file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use super::arguments::{Condition, Pointer, Test};
use super::budgets::{Budgets, RunBudget, ServerBudget};
use super::decimal::Decimal;
use super::error::{Place, PolicyError};
use super::rules::{Effect, Kind, Rule, Rules, WantedAnnotations};

/// Bytes of a compiled pattern.
const LARGEST_PATTERN: usize = 1 << 20;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
    #[serde(default)]
    budget: RawBudgets,
}

/// One `[[rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(default)]
    kind: Option<Names>,
    server: Option<Names>,
    tool: Option<Names>,
    /// The package, share, artifact, URI of a resource or prompt.
    name: Option<Names>,
    session: Option<Names>,
    principal: Option<Names>,
    annotations: Option<Spanned<WantedAnnotations>>,
    arguments: Option<Spanned<BTreeMap<String, Spanned<RawTest>>>>,
    effect: Effect,
    reason: Option<String>,
}

/// A condition on one argument.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "expected a condition: `{ equals = … }`, `{ matches = \"…\" }` or `{ less_than = … }`"
)]
struct RawTest {
    equals: Option<toml::Value>,
    matches: Option<String>,
    less_than: Option<toml::Value>,
}

/// `[budget]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBudgets {
    run: Option<RawRunBudget>,
    #[serde(default)]
    server: BTreeMap<String, RawServerBudget>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRunBudget {
    calls: Option<u64>,
    bytes: Option<u64>,
    seconds: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServerBudget {
    concurrency: Option<Spanned<usize>>,
    calls_per_minute: Option<Spanned<u32>>,
}

/// A name, or a list of names.
type Names = Spanned<OneOrMany>;

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// A text and the file that it is from, for the places of errors.
struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    /// Where the line ends are: a file may have thousands of rules.
    line_ends: Vec<usize>,
}

/// Reads a policy.
///
/// # Errors
/// It is not TOML, or not a policy. The error names the first wrong place.
pub(super) fn parse(file: &Path, text: &str) -> Result<Rules, PolicyError> {
    let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let reader = Reader { file, text, line_ends };
    let raw: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.error(at, explain(&error, text, "rule"))
    })?;
    let mut rules = Vec::with_capacity(raw.rule.len());
    for rule in raw.rule {
        rules.push(reader.rule(rule)?);
    }
    Ok(Rules::new(file, rules, reader.budgets(raw.budget)?))
}

/// Returns what is wrong with a text. `[rule]` in place of `[[rule]]` is what people write by mistake.
pub(super) fn explain(error: &toml::de::Error, text: &str, list: &str) -> String {
    let table: Option<toml::Table> = toml::from_str(text).ok();
    match table.and_then(|table| table.get(list).map(toml::Value::is_table)) {
        Some(true) => format!("write `[[{list}]]` in place of `[{list}]`: there may be several"),
        _ => error.message().trim().to_owned(),
    }
}

impl Reader<'_> {
    fn error(&self, at: usize, why: impl Into<String>) -> PolicyError {
        PolicyError::Invalid { place: Place::of(self.file, self.text, at), why: why.into() }
    }

    fn rule(&self, rule: Spanned<RawRule>) -> Result<Rule, PolicyError> {
        let at = rule.span().start;
        let rule = rule.into_inner();
        let kinds = self.kinds(rule.kind)?;
        let of_tools = [
            ("server", rule.server.is_some()),
            ("tool", rule.tool.is_some()),
            ("annotations", rule.annotations.is_some()),
            ("arguments", rule.arguments.is_some()),
        ];
        let are_of_servers = kinds.iter().all(|kind| kind.is_of_server());
        let is_wrong = |(key, is_there): &&(&str, bool)| *is_there && !(are_of_servers && *key == "server");
        if kinds != [Kind::Tool]
            && let Some((key, _)) = of_tools.iter().find(is_wrong)
        {
            return Err(self.error(at, format!("`{key}` is for rules of tools; other rules have `name`")));
        }
        if kinds.contains(&Kind::Tool) && rule.name.is_some() {
            return Err(self.error(at, "`name` is for other rules; rules of tools have `server` and `tool`"));
        }
        Ok(Rule {
            line: self.line_ends.partition_point(|end| *end < at) + 1,
            kinds,
            servers: self.patterns("server", rule.server)?,
            names: self.patterns("tool", rule.tool)?.or(self.patterns("name", rule.name)?),
            sessions: self.patterns("session", rule.session)?,
            principals: self.patterns("principal", rule.principal)?,
            annotations: rule.annotations.map(Spanned::into_inner),
            conditions: self.conditions(rule.arguments)?,
            effect: rule.effect,
            reason: rule.reason.map(Into::into),
        })
    }

    fn kinds(&self, kinds: Option<Names>) -> Result<Vec<Kind>, PolicyError> {
        let Some(kinds) = kinds else { return Ok(vec![Kind::Tool]) };
        let at = kinds.span().start;
        let kinds = kinds.into_inner().into_vec();
        let known = || Kind::ALL.map(|kind| format!("\"{kind}\"")).join(", ");
        if kinds.is_empty() {
            return Err(self.error(at, "`kind` is empty: leave it out for tools"));
        }
        let read = |kind: &String| {
            let unknown = || self.error(at, format!("unknown kind '{kind}': there are {}", known()));
            Kind::ALL.into_iter().find(|known| known.to_string() == **kind).ok_or_else(unknown)
        };
        kinds.iter().map(read).collect()
    }

    /// Returns patterns of names; None if any name fits.
    fn patterns(&self, key: &str, patterns: Option<Names>) -> Result<Option<Vec<String>>, PolicyError> {
        let Some(patterns) = patterns else { return Ok(None) };
        let at = patterns.span().start;
        let patterns = patterns.into_inner().into_vec();
        if patterns.is_empty() || patterns.iter().any(String::is_empty) {
            return Err(self.error(at, format!("`{key}` is empty: leave it out for any")));
        }
        Ok(Some(patterns))
    }

    fn conditions(
        &self,
        arguments: Option<Spanned<BTreeMap<String, Spanned<RawTest>>>>,
    ) -> Result<Vec<Condition>, PolicyError> {
        let Some(arguments) = arguments else { return Ok(Vec::new()) };
        let at = arguments.span().start;
        let condition = |(pointer, test): (String, Spanned<RawTest>)| {
            let pointer = Pointer::parse(&pointer).ok_or_else(|| {
                self.error(
                    at,
                    format!("'{pointer}' is not a JSON pointer: write `\"/name\"` for the argument `name`"),
                )
            })?;
            Ok(Condition { pointer, test: self.test(test)? })
        };
        arguments.into_inner().into_iter().map(condition).collect()
    }

    fn test(&self, test: Spanned<RawTest>) -> Result<Test, PolicyError> {
        let at = test.span().start;
        match test.into_inner() {
            RawTest { equals: Some(value), matches: None, less_than: None } => {
                if !is_json(&value) {
                    return Err(self.error(
                        at,
                        "`equals` takes a text, a number, true or false, or a list or table of these",
                    ));
                }
                let value = serde_json::to_value(value).map_err(|error| self.error(at, error.to_string()))?;
                Ok(Test::Equals(value))
            }
            RawTest { equals: None, matches: Some(pattern), less_than: None } => whole(&pattern)
                .map(Test::Matches)
                .map_err(|error| self.error(at, pattern_error(&pattern, &error))),
            RawTest { equals: None, matches: None, less_than: Some(limit) } => decimal(&limit)
                .map(Test::LessThan)
                .ok_or_else(|| self.error(at, "`less_than` takes a number, without quotes")),
            _ => Err(self.error(at, "a condition has one of `equals`, `matches` and `less_than`")),
        }
    }

    fn budgets(&self, raw: RawBudgets) -> Result<Budgets, PolicyError> {
        let run = match raw.run {
            None => RunBudget::default(),
            Some(RawRunBudget { calls, bytes, seconds }) => {
                let wrong = |seconds: &Spanned<f64>| {
                    self.error(seconds.span().start, "`seconds` must be a number from 0")
                };
                let time = |seconds: Spanned<f64>| {
                    Duration::try_from_secs_f64(*seconds.as_ref()).map_err(|_| wrong(&seconds))
                };
                RunBudget { calls, bytes, time: seconds.map(time).transpose()? }
            }
        };
        let mut servers = BTreeMap::new();
        for (name, RawServerBudget { concurrency, calls_per_minute }) in raw.server {
            if let Some(none) = concurrency.as_ref().filter(|concurrency| *concurrency.as_ref() == 0) {
                let why =
                    "`concurrency` must be at least 1; a rule with `effect = \"deny\"` denies all calls";
                return Err(self.error(none.span().start, why));
            }
            let budget = ServerBudget {
                concurrency: concurrency.map(Spanned::into_inner),
                calls_per_minute: calls_per_minute.map(Spanned::into_inner),
            };
            servers.insert(name, budget);
        }
        Ok(Budgets { run, servers })
    }
}

/// Returns a number of TOML; None if it is something else, or not finite.
fn decimal(value: &toml::Value) -> Option<Decimal> {
    match value {
        toml::Value::Integer(number) => Decimal::parse(&number.to_string()),
        toml::Value::Float(number) => Decimal::parse(&number.to_string()),
        _ => None,
    }
}

/// Whether a value of TOML can be one of JSON: not a time, and no number that is infinite or none.
fn is_json(value: &toml::Value) -> bool {
    match value {
        toml::Value::Float(number) => number.is_finite(),
        toml::Value::Datetime(_) => false,
        toml::Value::Array(items) => items.iter().all(is_json),
        toml::Value::Table(members) => members.values().all(is_json),
        _ => true,
    }
}

/// Compiles a pattern for a whole value: one that fits a part of it allows what nobody meant.
fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    // By itself, so that no pattern ends the group that is put around it.
    Regex::new(pattern)?;
    RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(LARGEST_PATTERN).build()
}

fn pattern_error(pattern: &str, error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        error => {
            // The last line says what is wrong, those before it draw a picture.
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("'{pattern}' is not a regular expression: {why}")
        }
    }
}
