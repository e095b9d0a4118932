//! How a server of a registry is started or reached: its definition, and what the user has to give for it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document::plain;
use super::entry::{Argument, Entry, Input, Named, Package, Remote};

/// Characters of a word of a command line, a URL or a value.
const LONGEST: usize = 2_000;
/// Words, variables and headers of one server.
const MOST_PARTS: usize = 100;

/// A way to start or to reach a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// `npm`, `pypi`, `oci`, `nuget` or `remote`.
    pub kind: &'static str,
    source: Source,
}

#[derive(Debug, Clone, PartialEq)]
enum Source {
    Package { package: Package, program: &'static str },
    Remote(Remote),
}

/// Why a way cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("packages of type '{0}' are not supported")]
    Kind(String),
    #[error(
        "its package is a bundle (mcpb): unpack it, and add the command of its manifest with `codebridge servers add NAME -- COMMAND`"
    )]
    Bundle,
    #[error(
        "its package is in another registry, {0}: install it from there, and add its command with `codebridge servers add NAME -- COMMAND`"
    )]
    Registry(String),
    #[error("its package speaks '{0}', not stdio")]
    Transport(String),
    #[error("the name or the version of its package is invalid")]
    Package,
    #[error("its URL is invalid")]
    Url,
    /// Values of definitions can refer to variables of this machine, which are nobody else's business.
    #[error("it has a '$' in its definition, which could refer to variables of this machine")]
    Dollar,
    #[error("its definition has control characters, or is too long")]
    Form,
}

/// What the user has to give, or can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Names it among the answers.
    pub id: String,
    pub name: String,
    /// `variable`, `header`, `argument` or `part of the URL`.
    pub kind: &'static str,
    pub description: String,
    pub is_required: bool,
    pub is_secret: bool,
    pub default: Option<String>,
    pub choices: Vec<String>,
}

impl Wanted {
    /// Whether the user is asked for it.
    pub fn is_asked(&self) -> bool {
        self.is_secret || (self.is_required && self.default.is_none())
    }
}

impl Entry {
    /// Returns the ways to use the server, remote ones first: they start nothing on this machine.
    pub fn recipes(&self) -> Vec<Result<Recipe, Unusable>> {
        let remotes = self.remotes.iter().map(Recipe::of_remote);
        remotes.chain(self.packages.iter().map(Recipe::of_package)).collect()
    }
}

impl Recipe {
    fn of_remote(remote: &Remote) -> Result<Self, Unusable> {
        let is_http = remote.url.starts_with("https://") || remote.url.starts_with("http://");
        if !is_http || remote.url.contains(char::is_whitespace) {
            return Err(Unusable::Url);
        }
        if !matches!(remote.kind.as_str(), "streamable-http" | "sse" | "http" | "") {
            return Err(Unusable::Transport(plain(&remote.kind)));
        }
        Self { kind: "remote", source: Source::Remote(remote.clone()) }.checked()
    }

    fn of_package(package: &Package) -> Result<Self, Unusable> {
        let speaks = package.transport.as_ref().map_or("stdio", |transport| transport.kind.as_str());
        if speaks != "stdio" {
            return Err(Unusable::Transport(plain(speaks)));
        }
        let programs: (&'static str, &[&'static str]) = match package.registry_type.as_str() {
            "npm" => ("npm", &["npx", "bunx"]),
            "pypi" => ("pypi", &["uvx"]),
            "oci" | "docker" => ("oci", &["docker", "podman"]),
            "nuget" => ("nuget", &["dnx"]),
            "mcpb" => return Err(Unusable::Bundle),
            other => return Err(Unusable::Kind(plain(other))),
        };
        // The program would look in its own registry, and could find somebody else's package. An image has its registry in its name.
        let base = package.registry_base_url.as_deref().filter(|base| !base.is_empty());
        if let Some(base) = base.filter(|base| programs.0 != "oci" && !is_usual(base, programs.0)) {
            return Err(Unusable::Registry(plain(base)));
        }
        let is_word = |text: &str| {
            text.len() <= LONGEST
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@/._:+-".contains(&byte))
        };
        let is_name = package.identifier.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@');
        if !is_name || !is_word(&package.identifier) || !package.version.as_deref().is_none_or(is_word) {
            return Err(Unusable::Package);
        }
        let (kind, programs) = programs;
        // A registry must not name any other program.
        let hint = package.runtime_hint.as_deref();
        let program = programs.iter().find(|program| hint == Some(**program)).unwrap_or(&programs[0]);
        Self { kind, source: Source::Package { package: package.clone(), program } }.checked()
    }

    /// Checks every text of the registry that becomes a part of the definition.
    fn checked(self) -> Result<Self, Unusable> {
        let mut texts = Texts::default();
        match &self.source {
            Source::Package { package, .. } => {
                for argument in package.runtime_arguments.iter().chain(&package.package_arguments) {
                    texts.0.extend(argument.name.as_deref());
                    texts.add(&argument.input);
                }
                texts.add_named(&package.environment_variables);
            }
            Source::Remote(remote) => {
                texts.0.push(&remote.url);
                texts.add_named(&remote.headers);
                remote.variables.values().for_each(|input| texts.add(input));
            }
        }
        if texts.0.iter().any(|text| text.contains('$')) {
            return Err(Unusable::Dollar);
        }
        let is_long = |text: &&str| text.len() > LONGEST || text.contains(char::is_control);
        if texts.0.len() > 4 * MOST_PARTS || texts.0.iter().any(is_long) {
            return Err(Unusable::Form);
        }
        Ok(self)
    }

    /// Returns how the server is reached: `stdio` or `http`.
    pub fn transport(&self) -> &'static str {
        match self.source {
            Source::Package { .. } => "stdio",
            Source::Remote(_) => "http",
        }
    }

    /// Returns what the user has to give, or can.
    pub fn wanted(&self) -> Vec<Wanted> {
        let mut walk = Walk { answers: None, wanted: Vec::new() };
        let _ = walk.definition(self);
        walk.wanted
    }

    /// Returns the definition with what the user has given, by the ids of what is wanted.
    pub fn definition(&self, answers: &BTreeMap<String, String>) -> Value {
        Walk { answers: Some(answers), wanted: Vec::new() }.definition(self).into()
    }

    /// Returns the command line, or the URL, with names in place of what the user gives.
    pub fn shown(&self) -> String {
        let mut walk = Walk { answers: None, wanted: Vec::new() };
        let definition = walk.definition(self);
        let words = |name: &str| definition.get(name).into_iter().flat_map(strings).collect::<Vec<_>>();
        match self.source {
            Source::Remote(_) => words("url").concat(),
            Source::Package { .. } => {
                let words: Vec<String> = words("command").into_iter().chain(words("args")).collect();
                shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
            }
        }
    }

    /// Returns the variables and headers whose values the registry gives.
    pub fn given(&self) -> Vec<String> {
        let named = match &self.source {
            Source::Package { package, .. } => &package.environment_variables,
            Source::Remote(remote) => &remote.headers,
        };
        let given =
            named.iter().filter_map(|one| Some(format!("{}={}", one.name, one.input.value.as_ref()?)));
        given.collect()
    }
}

/// Whether the base URL of a registry is that of the one which all programs of its kind use: its domain has the name of that.
fn is_usual(base: &str, kind: &str) -> bool {
    let usual = if kind == "npm" { "npmjs" } else { kind };
    let host = base.parse::<reqwest::Url>().ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| host.rsplit('.').nth(1) == Some(usual))
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// The texts of a definition.
#[derive(Default)]
struct Texts<'a>(Vec<&'a str>);

impl<'a> Texts<'a> {
    fn add(&mut self, input: &'a Input) {
        self.0.extend(input.value.as_deref().into_iter().chain(input.default.as_deref()));
        self.0.extend(input.choices.iter().map(String::as_str));
        for (name, inner) in &input.variables {
            self.0.push(name);
            self.add(inner);
        }
    }

    fn add_named(&mut self, named: &'a [Named]) {
        for one in named {
            self.0.push(&one.name);
            self.add(&one.input);
        }
    }
}

/// Goes through a recipe with the answers of the user, or with the names of what is wanted in their place.
struct Walk<'a> {
    answers: Option<&'a BTreeMap<String, String>>,
    wanted: Vec<Wanted>,
}

impl Walk<'_> {
    fn definition(&mut self, recipe: &Recipe) -> Map<String, Value> {
        let mut definition = Map::new();
        match &recipe.source {
            Source::Package { package, program } => {
                let env = self.named(&package.environment_variables, "variable");
                definition.insert("command".into(), (*program).into());
                definition.insert("args".into(), json!(self.words(package, program)));
                if !env.is_empty() {
                    definition.insert("env".into(), env.into());
                }
            }
            Source::Remote(remote) => {
                if remote.kind == "sse" {
                    definition.insert("type".into(), "sse".into());
                }
                let url = Input {
                    value: Some(remote.url.clone()),
                    variables: remote.variables.clone(),
                    ..Input::default()
                };
                let url = self.value("url", "URL", "part of the URL", &url).unwrap_or_default();
                definition.insert("url".into(), url.into());
                let headers = self.named(&remote.headers, "header");
                if !headers.is_empty() {
                    definition.insert("headers".into(), headers.into());
                }
            }
        }
        definition
    }

    /// Returns the words after the program.
    fn words(&mut self, package: &Package, program: &str) -> Vec<String> {
        let mut words = Vec::new();
        if matches!(program, "docker" | "podman") {
            words.extend(["run", "-i", "--rm"].map(String::from));
            for variable in package.environment_variables.iter().take(MOST_PARTS) {
                words.extend(["-e".to_owned(), variable.name.clone()]);
            }
        }
        let of_runtime = self.arguments("runtime", &package.runtime_arguments);
        let has = |word: &str| of_runtime.iter().any(|it| it == word);
        // `run` is there already.
        let is_run = |word: &String| matches!(program, "docker" | "podman") && word == "run";
        let is_confirmed = has("-y") || has("--yes");
        if program == "npx" && !is_confirmed {
            words.push("-y".into());
        }
        words.extend(of_runtime.into_iter().filter(|word| !is_run(word)));
        let identifier = &package.identifier;
        let last = identifier.rsplit('/').next().unwrap_or_default();
        match package.version.as_deref().filter(|version| !version.is_empty()) {
            // An image has its version in its name.
            Some(version) if matches!(program, "docker" | "podman") && !last.contains([':', '@']) => {
                words.push(format!("{identifier}:{version}"));
            }
            Some(version) if !matches!(program, "docker" | "podman") => {
                words.push(format!("{identifier}@{version}"));
            }
            _ => words.push(identifier.clone()),
        }
        if program == "dnx" {
            words.extend((!is_confirmed).then(|| "--yes".to_owned()));
            words.extend((!package.package_arguments.is_empty()).then(|| "--".to_owned()));
        }
        words.extend(self.arguments("package", &package.package_arguments));
        words
    }

    fn arguments(&mut self, place: &str, arguments: &[Argument]) -> Vec<String> {
        let mut words = Vec::new();
        for (number, argument) in (1..).zip(arguments.iter().take(MOST_PARTS)) {
            let flag = argument.name.as_deref().filter(|name| !name.is_empty());
            if let Some(flag) = flag.filter(|_| is_bare(argument)) {
                words.push(flag.to_owned());
                continue;
            }
            let label = flag.or(argument.value_hint.as_deref());
            let label = label.map_or_else(|| format!("argument {number}"), plain);
            let id = format!("{place}.{number}");
            let Some(value) = self.value(&id, &label, "argument", &argument.input) else { continue };
            match flag {
                Some(flag) if flag.starts_with("--") => words.push(format!("{flag}={value}")),
                Some(flag) => words.extend([flag.to_owned(), value]),
                None => words.push(value),
            }
        }
        words
    }

    fn named(&mut self, named: &[Named], kind: &'static str) -> Map<String, Value> {
        let mut pairs = Map::new();
        for one in named.iter().take(MOST_PARTS) {
            if let Some(value) =
                self.value(&format!("{kind}.{}", one.name), &plain(&one.name), kind, &one.input)
            {
                pairs.insert(one.name.clone(), value.into());
            }
        }
        pairs
    }

    /// Returns a value; None where the user gives none, and need not.
    fn value(&mut self, id: &str, name: &str, kind: &'static str, input: &Input) -> Option<String> {
        if let Some(template) = &input.value {
            let mut text = template.clone();
            for (variable, inner) in &input.variables {
                let place = format!("{{{variable}}}");
                if text.contains(&place) {
                    let value = self.value(&format!("{id}.{variable}"), &plain(variable), kind, inner)?;
                    text = text.replace(&place, &value);
                }
            }
            return Some(text);
        }
        let wanted = Wanted {
            id: id.to_owned(),
            name: name.to_owned(),
            kind,
            description: input.description.as_deref().map(plain).unwrap_or_default(),
            is_required: input.is_required,
            is_secret: input.is_secret,
            default: input.default.clone(),
            choices: input.choices.clone(),
        };
        let shown = (self.answers.is_none() && wanted.is_asked()).then(|| format!("<{name}>"));
        self.wanted.push(wanted);
        let answer = self.answers.and_then(|answers| answers.get(id)).filter(|answer| !answer.is_empty());
        answer.or(input.default.as_ref()).cloned().or(shown)
    }
}

/// Whether an argument is a flag without a value.
fn is_bare(argument: &Argument) -> bool {
    let Argument { input, value_hint, .. } = argument;
    let has_value = input.value.is_some() || input.default.is_some() || value_hint.is_some();
    !has_value && !input.is_required && !input.is_secret && input.choices.is_empty()
}

#[cfg(test)]
mod tests;
