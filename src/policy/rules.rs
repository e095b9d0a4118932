//! The rules of a policy, and which of them decides.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Deserialize;
use serde_json::Value;

use super::arguments::{Condition, read};
use super::budgets::Budgets;
use crate::glob::fits;
use crate::nearest::nearest;

/// Tools whose rules are remembered. Code can name any number of tools.
const MOST_REMEMBERED: usize = 10_000;

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    Allow,
    Deny,
    /// The person at the client decides.
    Ask,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        })
    }
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A call of a tool of a server.
    Tool,
    /// A package that code installs.
    Package,
    /// A folder of the host that a session sees.
    Share,
    /// An artifact that code saves or loads.
    Artifact,
    /// A resource of a server, by its URI.
    Resource,
    /// A prompt of a server.
    Prompt,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Tool, Self::Package, Self::Share, Self::Artifact, Self::Resource, Self::Prompt];

    /// Whether it is something of a server.
    pub(super) fn is_of_server(self) -> bool {
        matches!(self, Self::Tool | Self::Resource | Self::Prompt)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool",
            Self::Package => "package",
            Self::Share => "share",
            Self::Artifact => "artifact",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
        })
    }
}

/// What a server says of the effects of a tool, with the defaults of
/// <https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations>. They are claims of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

impl Annotations {
    /// Reads the `annotations` of a tool. What is missing or no boolean has its default.
    pub fn of(annotations: Option<&Value>) -> Self {
        let flag = |name, default| {
            annotations.and_then(|hints| hints.get(name)).and_then(Value::as_bool).unwrap_or(default)
        };
        let read_only = flag("readOnlyHint", false);
        Self {
            read_only,
            // It has a meaning only for tools that change something.
            destructive: !read_only && flag("destructiveHint", true),
            idempotent: flag("idempotentHint", false),
            open_world: flag("openWorldHint", true),
        }
    }
}

/// What the annotations of a tool must be for a rule.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WantedAnnotations {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl WantedAnnotations {
    fn fit(self, annotations: Annotations) -> bool {
        let fits = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        fits(self.read_only_hint, annotations.read_only)
            && fits(self.destructive_hint, annotations.destructive)
            && fits(self.idempotent_hint, annotations.idempotent)
            && fits(self.open_world_hint, annotations.open_world)
    }
}

/// One rule. A pattern that is None fits everything.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) line: usize,
    pub(super) kinds: Vec<Kind>,
    pub(super) servers: Option<Vec<String>>,
    /// Tools, or the names of other things.
    pub(super) names: Option<Vec<String>>,
    pub(super) sessions: Option<Vec<String>>,
    pub(super) principals: Option<Vec<String>>,
    pub(super) annotations: Option<WantedAnnotations>,
    pub(super) conditions: Vec<Condition>,
    pub(super) effect: Effect,
    pub(super) reason: Option<Arc<str>>,
}

impl Rule {
    /// Whether it is about this name, or about some name where none is given.
    fn is_about(&self, kind: Kind, server: &str, name: Option<&str>) -> bool {
        self.kinds.contains(&kind)
            && any_fits(&self.servers, server)
            && name.is_none_or(|name| any_fits(&self.names, name))
    }

    fn is_about_any(&self) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|pattern| pattern == "*"))
    }

    /// Whether it decides whatever else is true of a call that it is about.
    fn is_unconditional(&self) -> bool {
        self.sessions.is_none()
            && self.principals.is_none()
            && self.annotations.is_none()
            && self.conditions.is_empty()
    }

    fn decides_for(&self, who: &Caller<'_>, annotations: Annotations) -> bool {
        let session = match (&self.sessions, who.session) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(patterns), Some(session)) => patterns.iter().any(|pattern| fits(pattern, session)),
        };
        session
            && any_fits(&self.principals, who.principal)
            && self.annotations.is_none_or(|wanted| wanted.fit(annotations))
    }
}

fn any_fits(patterns: &Option<Vec<String>>, name: &str) -> bool {
    patterns.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| fits(pattern, name)))
}

/// The principal of a bridge that one person uses.
pub const LOCAL: &str = "local";

/// Who wants something. A client's own name is no part of it: nobody has to believe that.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// None for a call from the command line.
    pub session: Option<&'a str>,
    pub principal: &'a str,
}

/// A call of a tool that somebody wants.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    pub server: &'a str,
    pub tool: &'a str,
    pub annotations: Annotations,
    /// A JSON object, as its caller wrote it.
    pub arguments: &'a [u8],
}

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleName {
    pub file: Arc<Path>,
    /// Counted from 1.
    pub line: usize,
    /// What the operator says about it.
    pub reason: Option<Arc<str>>,
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow(RuleName),
    Ask(RuleName),
    Deny(Denial),
}

impl Verdict {
    /// Returns the rule that decided, if one did.
    pub fn rule(&self) -> Option<&RuleName> {
        match self {
            Self::Allow(rule) | Self::Ask(rule) => Some(rule),
            Self::Deny(Denial::Rule { rule } | Denial::Arguments { rule, .. }) => Some(rule),
            Self::Deny(Denial::NoRule(_)) => None,
        }
    }

    pub fn effect(&self) -> Effect {
        match self {
            Self::Allow(_) => Effect::Allow,
            Self::Ask(_) => Effect::Ask,
            Self::Deny(_) => Effect::Deny,
        }
    }
}

/// Why something is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("the rule at {rule} denies it{}", reason(rule))]
    Rule { rule: RuleName },
    #[error("no rule of '{}' allows it", .0.display())]
    NoRule(Arc<Path>),
    #[error("the rule at {rule} has conditions on the arguments, which cannot be read: {why}")]
    Arguments { rule: RuleName, why: String },
}

fn reason(rule: &RuleName) -> String {
    rule.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

/// A policy without errors.
#[derive(Debug)]
pub struct Rules {
    file: Arc<Path>,
    rules: Vec<Rule>,
    pub(super) budgets: Budgets,
    /// The rules about a tool, by server and tool: there may be thousands of others.
    remembered: RwLock<Remembered>,
}

/// A rule about a tool or a server.
#[derive(Debug, Clone, Copy)]
struct About {
    rule: u32,
    /// Whether it is about all that is meant: a rule about some tools of a server may not be about the one that is called.
    is_certain: bool,
}

/// Rules by server and tool.
#[derive(Debug, Default)]
struct Remembered {
    rules: HashMap<String, HashMap<String, Arc<[About]>>>,
    count: usize,
}

impl Rules {
    pub(super) fn new(file: &Path, rules: Vec<Rule>, budgets: Budgets) -> Self {
        Self { file: file.into(), rules, budgets, remembered: RwLock::default() }
    }

    /// Decides a call of a tool.
    pub fn of_call(&self, call: &ToolCall<'_>, who: &Caller<'_>) -> Verdict {
        let about = self.about(call.server, Some(call.tool));
        let mut arguments: Option<Value> = None;
        for rule in about.iter().filter_map(|about| self.rules.get(about.rule as usize)) {
            if !rule.decides_for(who, call.annotations) {
                continue;
            }
            if !rule.conditions.is_empty() {
                let arguments = match &mut arguments {
                    Some(arguments) => arguments,
                    none => match read(call.arguments) {
                        Ok(value) => none.insert(value),
                        Err(error) => {
                            let (rule, why) = (self.name(rule), error.to_string());
                            return Verdict::Deny(Denial::Arguments { rule, why });
                        }
                    },
                };
                if !rule.conditions.iter().all(|condition| condition.holds(arguments)) {
                    continue;
                }
            }
            return self.verdict(rule);
        }
        self.nothing_fits()
    }

    /// Decides about something else than a tool, by its name.
    pub fn of(&self, kind: Kind, name: &str, who: &Caller<'_>) -> Verdict {
        self.of_offer(kind, "", name, who)
    }

    /// Decides about a resource or a prompt of a server.
    pub fn of_offer(&self, kind: Kind, server: &str, name: &str, who: &Caller<'_>) -> Verdict {
        let none = Annotations::of(None);
        let fits = |rule: &&Rule| rule.is_about(kind, server, Some(name)) && rule.decides_for(who, none);
        let fitting = self.rules.iter().find(fits);
        fitting.map_or_else(|| self.nothing_fits(), |rule| self.verdict(rule))
    }

    /// Returns why a call of a tool is denied, if that is so whatever its arguments and the annotations of the tool are.
    pub fn denies_tool(&self, server: &str, tool: &str, who: &Caller<'_>) -> Option<Denial> {
        self.denies_early(&self.about(server, Some(tool)), who)
    }

    /// Returns why calls of all tools of a server are denied, if that is so.
    pub fn denies_server(&self, server: &str, who: &Caller<'_>) -> Option<Denial> {
        self.denies_early(&self.about(server, None), who)
    }

    fn denies_early(&self, about: &[About], who: &Caller<'_>) -> Option<Denial> {
        let none = Annotations::of(None);
        let mut rules = about.iter().filter_map(|about| Some((about, self.rules.get(about.rule as usize)?)));
        let deciding = rules.find(|(_, rule)| rule.annotations.is_some() || rule.decides_for(who, none));
        match deciding {
            None => Some(Denial::NoRule(Arc::clone(&self.file))),
            Some((about, rule)) => {
                let is_certain = about.is_certain && rule.annotations.is_none() && rule.conditions.is_empty();
                (rule.effect == Effect::Deny && is_certain).then(|| Denial::Rule { rule: self.name(rule) })
            }
        }
    }

    /// Returns the budgets of runs and servers.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns what is probably a mistake, given the names of all servers.
    pub fn warnings(&self, servers: &[&str]) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, line) in self.named_servers() {
            if servers.contains(&name.as_str()) {
                continue;
            }
            let place = if line == 0 { "the budget".to_owned() } else { format!("the rule in line {line}") };
            let meant = nearest(&name, servers.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
            warnings.push(format!("{place} is about '{name}', and there is no such server{meant}"));
        }
        for rule in &self.rules {
            let names = rule.names.iter().flatten().filter_map(|name| Some((name, name.split_once('.')?)));
            for (name, (server, tool)) in names.filter(|(_, (server, _))| servers.contains(server)) {
                warnings.push(format!(
                    "the rule in line {} is about a tool '{name}'; did you mean `server = \"{server}\"` and `tool = \"{tool}\"`?",
                    rule.line
                ));
            }
        }
        for (line, earlier) in self.unreachable() {
            warnings.push(format!(
                "the rule in line {line} never decides: the one in line {earlier} comes first"
            ));
        }
        warnings
    }

    /// Returns the servers that rules and budgets name without a `*`, each with the line of the rule; 0 for a budget.
    pub(super) fn named_servers(&self) -> BTreeSet<(String, usize)> {
        let of_rules = self.rules.iter().flat_map(|rule| {
            let servers = rule.servers.iter().flatten();
            servers.filter(|server| !server.contains('*')).map(|server| (server.clone(), rule.line))
        });
        of_rules.chain(self.budgets.servers.keys().map(|server| (server.clone(), 0))).collect()
    }

    /// Returns the lines of rules that never decide, each with the line of the earlier rule that does.
    pub(super) fn unreachable(&self) -> Vec<(usize, usize)> {
        // Only rules for everything are compared: whether one pattern covers another is rarely clear to a reader.
        let mut found = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            let covers = |earlier: &&Rule| {
                earlier.is_unconditional()
                    && rule.kinds.iter().all(|kind| earlier.kinds.contains(kind))
                    && covers(&earlier.servers, &rule.servers)
                    && covers(&earlier.names, &rule.names)
            };
            if let Some(earlier) = self.rules.iter().take(at).find(covers) {
                found.push((rule.line, earlier.line));
            }
        }
        found
    }

    /// Returns the rules about a tool, or those about any tool of a server.
    fn about(&self, server: &str, tool: Option<&str>) -> Arc<[About]> {
        // No tool has an empty name.
        let key = tool.unwrap_or_default();
        let known = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(about) = known.rules.get(server).and_then(|tools| tools.get(key)) {
            return Arc::clone(about);
        }
        drop(known);
        let mut about: Vec<About> = Vec::new();
        for (number, rule) in (0_u32..).zip(&self.rules) {
            if !rule.is_about(Kind::Tool, server, tool) {
                continue;
            }
            let is_certain = tool.is_some() || rule.is_about_any();
            about.push(About { rule: number, is_certain });
            // Those behind it never decide.
            if is_certain && rule.is_unconditional() {
                break;
            }
        }
        let about: Arc<[About]> = about.into();
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if remembered.count >= MOST_REMEMBERED {
            *remembered = Remembered::default();
        }
        remembered.count += 1;
        let tools = remembered.rules.entry(server.to_owned()).or_default();
        tools.insert(key.to_owned(), Arc::clone(&about));
        about
    }

    #[cfg(test)]
    pub(super) fn remembered(&self, server: &str, tool: &str) -> Option<usize> {
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        Some(remembered.rules.get(server)?.get(tool)?.len())
    }

    fn verdict(&self, rule: &Rule) -> Verdict {
        let name = self.name(rule);
        match rule.effect {
            Effect::Allow => Verdict::Allow(name),
            Effect::Ask => Verdict::Ask(name),
            Effect::Deny => Verdict::Deny(Denial::Rule { rule: name }),
        }
    }

    fn name(&self, rule: &Rule) -> RuleName {
        RuleName { file: Arc::clone(&self.file), line: rule.line, reason: rule.reason.clone() }
    }

    fn nothing_fits(&self) -> Verdict {
        Verdict::Deny(Denial::NoRule(Arc::clone(&self.file)))
    }

    pub fn file(&self) -> Arc<Path> {
        Arc::clone(&self.file)
    }
}

/// Whether every name that fits `narrow` fits `wide` too, as far as that is plain to see.
fn covers(wide: &Option<Vec<String>>, narrow: &Option<Vec<String>>) -> bool {
    let Some(wide) = wide else { return true };
    if wide.iter().any(|pattern| pattern == "*") {
        return true;
    }
    let Some(narrow) = narrow else { return false };
    narrow.iter().all(|name| wide.iter().any(|pattern| fits(pattern, name)))
}
