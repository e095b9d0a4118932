//! Servers that code wants to add: what they would be, and the question to the person. Nothing here asks or writes.
//!
//! Code is not trusted. It must not refer to variables of this machine, it must not hold credentials, and the person sees
//! everything that it wants before it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Url;
use serde_json::{Map, Value, json};

use super::credential::is_credential;
use super::discovery::{ChangeError, in_ascii};
use super::error::UpstreamError;
use super::export::has_credential;
use super::naming::{name_of_command, name_of_url, short_name};
use super::registry::{Entry, RegistryError};
use crate::audit::AuditError;

/// A server that code wants to add.
#[derive(Debug, Clone)]
pub struct NewServer {
    pub name: Option<String>,
    pub description: Option<String>,
    pub from: NewFrom,
    /// Whether it is to stay when the bridge ends.
    pub for_good: bool,
}

/// What it is.
#[derive(Debug, Clone)]
pub enum NewFrom {
    /// A name of the MCP registry.
    Registry(String),
    Url {
        url: String,
        headers: BTreeMap<String, String>,
    },
    Command {
        words: Vec<String>,
        env: BTreeMap<String, String>,
    },
}

/// Why a server was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Denied by the policy, or it cannot be used after all.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("'{0}' cannot be added: {1}")]
    Unusable(String, String),
    #[error("'{name}' needs {}, which code must not have", missing.join(", "))]
    Needs { name: String, missing: Vec<String> },
    #[error("code cannot add a server with what looks like a credential")]
    Credential,
    #[error(
        "code cannot add a server with a '$' in its definition, which could refer to variables of this machine"
    )]
    Dollar,
    #[error("'{0}' is not the URL of a server: it must start with https:// or http://")]
    Url(String),
    #[error("the server needs a name")]
    NoName,
    #[error("over HTTP, code can add servers with a URL only")]
    OnlyUrls,
    #[error("over HTTP, only the operator adds servers for good")]
    NotForGood,
    #[error("over HTTP, code can add servers only where a policy says which")]
    NoPolicy,
    #[error("the user said no to the server '{0}'")]
    Refused(String),
    #[error("the user gave no answer about the server '{0}'")]
    Unanswered(String),
    #[error("the user has not approved the servers that code wanted to add before")]
    AskedTooOften,
    #[error("nobody can be asked whether to add the server '{0}'")]
    NobodyToAsk(String),
    #[error("the server '{0}' was not added: {1}")]
    Unrecorded(String, Arc<AuditError>),
}

impl AddError {
    /// Returns what can be done about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Registry(error) => error.hint(),
            Self::Upstream(error) => error.hint(),
            Self::Change(ChangeError::Exists { .. }) => {
                Some("use that server, or choose another name".into())
            }
            Self::Needs { .. } | Self::Credential => {
                Some("ask the user to run `codebridge servers add`, which asks for credentials".into())
            }
            Self::Unrecorded(_, why) => Some(why.hint()),
            Self::NoName => Some("pass name=…".into()),
            Self::NobodyToAsk(_) => {
                Some("ask the user to run `codebridge servers add`, or to use a client that can show forms (elicitation)".into())
            }
            _ => None,
        }
    }

    /// Whether somebody has said no, or nobody yes.
    pub fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::Upstream(UpstreamError::NotAllowed { .. })
                | Self::OnlyUrls
                | Self::NotForGood
                | Self::NoPolicy
                | Self::Refused(_)
                | Self::Unanswered(_)
                | Self::AskedTooOften
                | Self::NobodyToAsk(_)
        )
    }
}

/// A server as it would be.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) definition: Value,
    /// What rules know it by: the host of its URL, or its command line.
    pub(super) subject: String,
    pub(super) is_command: bool,
    publisher: Option<String>,
}

/// Returns what would be added. `entry` is what the registry says of it.
pub(super) fn plan(new: &NewServer, entry: Option<&Entry>) -> Result<Planned, AddError> {
    let (meant, mut definition) = match (&new.from, entry) {
        (NewFrom::Registry(name), None) => {
            return Err(AddError::Unusable(name.clone(), "the registry says nothing of it".into()));
        }
        (NewFrom::Registry(_), Some(entry)) => (short_name(&entry.name), of_entry(entry)?),
        (NewFrom::Url { url, headers }, _) => {
            let parsed = parse_url(url)?;
            check_pairs(headers)?;
            let mut definition = Map::new();
            definition.insert("url".into(), url.as_str().into());
            add_pairs(&mut definition, "headers", headers);
            (name_of_url(parsed.host_str().unwrap_or_default()), definition)
        }
        (NewFrom::Command { words, env }, _) => {
            if has_credential(words) {
                return Err(AddError::Credential);
            }
            check_pairs(env)?;
            let mut definition = Map::new();
            definition.insert("command".into(), words.first().map(String::as_str).unwrap_or_default().into());
            definition.insert("args".into(), json!(words.get(1..).unwrap_or_default()));
            add_pairs(&mut definition, "env", env);
            (name_of_command(words), definition)
        }
    };
    let description = entry.map(|entry| entry.description.clone()).filter(|text| !text.is_empty());
    if let Some(description) = new.description.clone().or(description) {
        definition.insert("description".into(), description.into());
    }
    let definition = Value::Object(definition);
    if definition.to_string().contains('$') {
        return Err(AddError::Dollar);
    }
    let name = new.name.clone().or(meant).ok_or(AddError::NoName)?;
    let is_command = definition.get("command").is_some();
    let subject = match definition["url"].as_str() {
        Some(url) => host_of(&parse_url(url)?),
        None => command_line(&definition),
    };
    let publisher =
        entry.map(|entry| format!("{} {}, published by {}", entry.name, entry.version, entry.publisher()));
    Ok(Planned { name, definition, subject, is_command, publisher })
}

fn of_entry(entry: &Entry) -> Result<Map<String, Value>, AddError> {
    let recipes = entry.recipes();
    let Some(recipe) = recipes.iter().flatten().next() else {
        let why: Vec<String> = recipes.iter().filter_map(|it| Some(it.as_ref().err()?.to_string())).collect();
        let why =
            if why.is_empty() { "the registry says of no package and no URL".into() } else { why.join("; ") };
        return Err(AddError::Unusable(entry.name.clone(), why));
    };
    let needed =
        recipe.wanted().into_iter().filter(|it| it.is_required && (it.is_secret || it.default.is_none()));
    let missing: Vec<String> = needed.map(|wanted| wanted.name).collect();
    if !missing.is_empty() {
        return Err(AddError::Needs { name: entry.name.clone(), missing });
    }
    match recipe.definition(&BTreeMap::new()) {
        Value::Object(definition) => Ok(definition),
        _ => Ok(Map::new()),
    }
}

fn parse_url(text: &str) -> Result<Url, AddError> {
    let wrong = || AddError::Url(in_ascii(&text.chars().take(200).collect::<String>()));
    let url: Url = text.parse().map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong());
    }
    let in_query = url.query_pairs().any(|(name, value)| is_credential(&name, &value));
    if in_query || url.password().is_some() || !url.username().is_empty() {
        return Err(AddError::Credential);
    }
    Ok(url)
}

fn check_pairs(pairs: &BTreeMap<String, String>) -> Result<(), AddError> {
    match pairs.iter().any(|(name, value)| is_credential(name, value)) {
        true => Err(AddError::Credential),
        false => Ok(()),
    }
}

fn add_pairs(definition: &mut Map<String, Value>, key: &str, pairs: &BTreeMap<String, String>) {
    if !pairs.is_empty() {
        definition.insert(key.into(), json!(pairs));
    }
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn command_line(definition: &Value) -> String {
    let args = definition["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<&str> = definition["command"].as_str().into_iter().chain(args).collect();
    shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" "))
}

impl Planned {
    /// Returns the question to the person: all of the definition, in ASCII.
    pub(super) fn request(&self, session: Option<&str>, for_good: bool) -> String {
        let Self { name, definition, is_command, publisher, .. } = self;
        let how_long = if for_good { "for good" } else { "until this bridge ends" };
        let rights = match is_command {
            true => "It runs outside of the sandbox, with your rights.",
            false => "Code can send it what it likes, and gets what it answers.",
        };
        let session =
            session.map_or_else(String::new, |session| format!(" in the session '{}'", in_ascii(session)));
        let publisher =
            publisher.as_ref().map_or_else(String::new, |text| format!("\n    {}", in_ascii(text)));
        let text = serde_json::to_string_pretty(definition).unwrap_or_default();
        // Indented, so that clients which format text show it as it is.
        let text = in_ascii(&text).replace('\n', "\n    ");
        format!(
            "Code{session} wants to add the MCP server '{}' {how_long}. {rights} Approve it only if you know what it is.\n{publisher}\n    {text}",
            in_ascii(name)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(from: NewFrom) -> NewServer {
        NewServer { name: Some("x".into()), description: None, from, for_good: false }
    }

    fn url(url: &str, headers: &[(&str, &str)]) -> NewServer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        new(NewFrom::Url { url: url.into(), headers })
    }

    fn command(line: &str, env: &[(&str, &str)]) -> NewServer {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        new(NewFrom::Command { words: line.split(' ').map(str::to_owned).collect(), env })
    }

    #[test]
    fn rules_know_a_server_by_its_host_or_its_command_line() {
        let of = |new: &NewServer| plan(new, None).unwrap().subject;
        assert_eq!(of(&url("https://MCP.Example:8443/a?b=c", &[])), "mcp.example:8443");
        assert_eq!(of(&url("https://mcp.example:443/", &[])), "mcp.example");
        assert_eq!(of(&command("npx -y @x/y", &[])), "npx -y @x/y");
    }

    #[test]
    fn code_gives_no_credentials_and_refers_to_no_variables() {
        for new in [
            url("https://a:b@h/", &[]),
            url("https://h/?api_key=abcdef", &[]),
            url("https://h/", &[("Authorization", "x")]),
            command("npx x --token abcdef1", &[]),
            command("npx x", &[("API_KEY", "a")]),
        ] {
            assert!(matches!(plan(&new, None), Err(AddError::Credential)), "{new:?}");
        }
        for new in [
            url("https://h/${HOME}", &[]),
            url("https://h/", &[("X", "${HOME}")]),
            command("npx ${HOME}", &[]),
            command("npx x", &[("A", "$B")]),
        ] {
            assert!(matches!(plan(&new, None), Err(AddError::Dollar)), "{new:?}");
        }
        for text in ["file:///etc/passwd", "h", "https://"] {
            assert!(matches!(plan(&url(text, &[]), None), Err(AddError::Url(_))), "{text}");
        }
    }

    #[test]
    fn the_question_shows_everything_in_ascii() {
        let planned = plan(&command("npx \u{202e}x\u{1b}[2J", &[("A", "b\nc")]), None).unwrap();
        let request = planned.request(Some("main\n"), false);
        assert!(request.contains("npx") && request.contains("\\u202ex\\u001b[2J"), "{request}");
        assert!(
            request.contains("with your rights") && request.contains("until this bridge ends"),
            "{request}"
        );
        assert!(request.is_ascii() && !request.contains('\u{1b}'), "{request}");
        assert!(planned.request(None, true).contains("for good"));
    }
}
