//! Definitions without their credentials, for other people and programs.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::credential::is_credential;
use super::discovery::{Definition, Launch, Written};
use super::pool::Secrets;

/// Keys of `oauth` and `auth` whose values are credentials.
const SECRETS: [&str; 6] = ["clientSecret", "client_secret", "password", "secret", "token", "value"];

/// Definitions in the form of `mcpServers`, and the variables that stand for what was left out.
#[derive(Debug)]
pub struct Exported {
    pub document: Value,
    pub variables: Vec<String>,
}

/// Returns definitions with a variable in place of each credential.
pub fn export(definitions: &[Written]) -> Exported {
    let mut variables = BTreeSet::new();
    let mut servers = Map::new();
    for written in definitions {
        let definition = without_credentials(&written.name, &written.definition, &mut variables);
        servers.insert(written.name.clone(), definition);
    }
    Exported { document: json!({ "mcpServers": servers }), variables: variables.into_iter().collect() }
}

/// Whether a command line has what looks like a credential, which others can see while it runs. References to variables have none.
pub fn has_credential(command: &[String]) -> bool {
    let is_reference = |word: &&String| word.contains("${");
    // The word after an option counts as its value, so something has to stay there.
    let plain = |word: &String| if is_reference(&word) { "-".to_owned() } else { word.clone() };
    let mut words = command.iter().map(plain);
    let launch = Launch::Stdio {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        env: Vec::new(),
        cwd: None,
    };
    !secrets_of(launch).is_empty()
}

fn secrets_of(launch: Launch) -> Secrets {
    Secrets::of(&Definition { launch, startup_timeout: None, call_timeout: None, filled_in: Vec::new() })
}

fn without_credentials(server: &str, definition: &Value, variables: &mut BTreeSet<String>) -> Value {
    let Value::Object(members) = definition else { return definition.clone() };
    let mut kept = Map::new();
    for (name, value) in members {
        let value = match (name.as_str(), value) {
            ("env" | "environment", Value::Object(pairs)) => {
                without_values(pairs, is_credential, str::to_owned, variables)
            }
            ("headers" | "http_headers", Value::Object(pairs)) => {
                let variable = |header: &str| variable_name(&format!("{server}_{header}"));
                without_values(pairs, |_, _| true, variable, variables)
            }
            ("oauth" | "auth", Value::Object(pairs)) => {
                let variable = |key: &str| variable_name(&format!("{server}_{key}"));
                without_values(pairs, |key, _| SECRETS.contains(&key), variable, variables)
            }
            ("command" | "args" | "url" | "httpUrl" | "serverUrl", value) => {
                let secrets = secrets_of(launch_of(members));
                let mut name = |name: &str| {
                    let variable = variable_name(&format!("{server}_{name}"));
                    variables.insert(variable.clone());
                    format!("${{{variable}}}")
                };
                replaced(value, &secrets, &mut name)
            }
            (_, value) => value.clone(),
        };
        kept.insert(name.clone(), value);
    }
    Value::Object(kept)
}

/// Returns pairs with a variable in place of each value that is not to be shown.
fn without_values(
    pairs: &Map<String, Value>,
    is_hidden: impl Fn(&str, &str) -> bool,
    variable: impl Fn(&str) -> String,
    variables: &mut BTreeSet<String>,
) -> Value {
    let pair = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if value.is_null() || is_reference(&text) || !is_hidden(name, &text) {
            return (name.clone(), value.clone());
        }
        // The variable is set by whoever uses it.
        let variable = variable(name);
        variables.insert(variable.clone());
        (name.clone(), json!(format!("${{{variable}}}")))
    };
    pairs.iter().map(pair).collect::<Map<_, _>>().into()
}

/// Whether a value is a reference to a variable, with or without a scheme such as `Bearer`.
fn is_reference(text: &str) -> bool {
    let text = text.rsplit(' ').next().unwrap_or_default();
    let inner = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
    inner.is_some_and(|name| !name.contains(['}', '{']) && !name.contains(":-"))
}

/// Returns what a definition starts or contacts, for a look at its words.
fn launch_of(members: &Map<String, Value>) -> Launch {
    let words = |name: &str| match members.get(name) {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let url = ["url", "httpUrl", "serverUrl"].into_iter().flat_map(words).next();
    match url {
        Some(url) if !members.contains_key("command") => {
            Launch::Http { url, headers: Vec::new(), older: false, options: Arc::default() }
        }
        _ => {
            let mut all = words("command").into_iter().chain(words("args"));
            let command = all.next().unwrap_or_default();
            Launch::Stdio { command, args: all.collect(), env: Vec::new(), cwd: None }
        }
    }
}

fn replaced(value: &Value, secrets: &Secrets, name: &mut impl FnMut(&str) -> String) -> Value {
    match value {
        Value::String(text) => secrets.replace(text, name).into(),
        Value::Array(items) => items.iter().map(|item| replaced(item, secrets, name)).collect(),
        other => other.clone(),
    }
}

/// Returns a name as variables have: upper case, with underscores.
fn variable_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::upstream::discovery::Source;

    fn written(name: &str, definition: Value) -> Written {
        let source = Source { path: Path::new("/f").into(), line: 1 };
        Written { name: name.into(), source, definition, is_itself: false, problem: None }
    }

    #[test]
    fn no_credential_is_exported_and_the_rest_stays() {
        let exported = export(&[
            written(
                "db",
                json!({
                    "command": "npx",
                    "args": ["-y", "some-server@1.2", "--api-key", "hunter2", "postgres://me:hunter3@db/x"],
                    "env": { "API_TOKEN": "hunter4", "PIN_PASS": 12345, "LEVEL": "debug", "KEY": "${MY_KEY}" },
                    "description": "rows",
                }),
            ),
            written(
                "web-site",
                json!({
                    "url": "https://h/mcp?apikey=hunter6",
                    "oauth": { "clientId": "us", "clientSecret": "hunter9" },
                    "headers": { "Authorization": "Bearer hunter7", "X": "Bearer ${TOKEN}", "Y": "a ${B:-hunter8}" },
                }),
            ),
        ]);
        let text = exported.document.to_string();
        assert!(!text.contains("hunter") && !text.contains("12345"), "{text}");
        let servers = &exported.document["mcpServers"];
        assert_eq!(
            servers["db"]["env"],
            json!({ "API_TOKEN": "${API_TOKEN}", "PIN_PASS": "${PIN_PASS}", "LEVEL": "debug", "KEY": "${MY_KEY}" })
        );
        assert_eq!(servers["db"]["args"][1], "some-server@1.2");
        assert_eq!(servers["db"]["args"][3], "${DB_API_KEY}");
        assert_eq!(servers["web-site"]["headers"]["Authorization"], "${WEB_SITE_AUTHORIZATION}");
        assert_eq!(servers["web-site"]["headers"]["X"], "Bearer ${TOKEN}");
        assert_eq!(servers["web-site"]["url"], "https://h/mcp?apikey=${WEB_SITE_APIKEY}");
        assert!(exported.variables.contains(&"API_TOKEN".to_owned()), "{:?}", exported.variables);
    }

    #[test]
    fn a_credential_in_a_command_is_noticed_and_a_reference_is_none() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in ["npx x --token abcdef1", "npx x --api-key=abcdef1", "npx x postgres://a:abcdef1@h/d"] {
            assert!(has_credential(&words(line)), "{line}");
        }
        for line in ["npx -y @scope/some-server@1.0.0 /home/me", "npx x --token ${TOKEN} y", "uvx a==1.2"] {
            assert!(!has_credential(&words(line)), "{line}");
        }
    }
}
