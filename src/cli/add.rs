//! `codebridge servers add`: writes a definition, and asks for what must not stand in a command line.

use std::process::ExitCode;

use codebridge_runtimes::exec::visible;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::AddArgs;
use super::add_found::{self, is_name};
use super::ask::{Person, Typed};
use super::definitions::say_whether_used;
use super::errors::CommandError;
use super::output::print;
use super::say::say;
use super::servers_error::ServersError;
use crate::error::Exit;
use crate::upstream::{has_credential, is_credential, name_of_command, name_of_url, shell_word};
use crate::workspace::Workspace;

pub(super) async fn add(workspace: &Workspace, args: AddArgs) -> Result<ExitCode, CommandError> {
    let definitions = workspace.upstream.definitions();
    let (name, mut definition) = match args.what.as_deref().filter(|_| args.command.is_empty()) {
        Some(what) if is_name(what) => {
            no_values(&args)?;
            add_found::plan(workspace, &args, what).await?
        }
        _ => plan(&args)?,
    };
    if let Some(description) = &args.description {
        definition.insert("description".into(), description.as_str().into());
    }
    definitions.check_new(&name).map_err(ServersError::from)?;
    definitions.check_definition(&name, &Value::Object(definition.clone())).map_err(ServersError::from)?;
    let person = Person::find();
    for (key, given) in [("env", &args.env), ("headers", &args.header)] {
        let pairs = pairs(given, &person)?;
        if !pairs.is_empty() {
            definition.insert(key.into(), pairs.into());
        }
    }
    let file = definitions.add(&name, &Value::Object(definition)).map_err(ServersError::from)?;
    print(&visible(&format!("added '{name}' to {}\n", file.display()))).await?;
    say_whether_used(workspace, &name);
    say(format_args!(
        "hint: `codebridge servers refresh {}` connects to it and reads its tools",
        shell_word(&name)
    ));
    Ok(Exit::Success.into())
}

/// Returns the name and the definition, without variables and headers.
fn plan(args: &AddArgs) -> Result<(String, Map<String, Value>), ServersError> {
    let mut definition = Map::new();
    let (named, meant) = if args.command.is_empty() {
        let what = args.what.as_deref().unwrap_or_default();
        let url = url(what)?;
        if !args.env.is_empty() || args.cwd.is_some() {
            return Err(ServersError::OnlyCommand(if args.cwd.is_some() { "--cwd" } else { "--env" }));
        }
        if args.sse {
            definition.insert("type".into(), "sse".into());
        }
        definition.insert("url".into(), what.into());
        (None, name_of_url(url.host_str().unwrap_or_default()))
    } else {
        if !args.header.is_empty() || args.sse {
            return Err(ServersError::OnlyUrl(if args.sse { "--sse" } else { "--header" }));
        }
        if has_credential(&args.command) {
            return Err(ServersError::Visible("the command".into()));
        }
        definition.insert("command".into(), args.command[0].as_str().into());
        if args.command.len() > 1 {
            definition.insert("args".into(), json!(args.command[1..]));
        }
        if let Some(cwd) = &args.cwd {
            let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.clone());
            definition.insert("cwd".into(), cwd.to_string_lossy().into());
        }
        (args.what.clone(), name_of_command(&args.command))
    };
    let name = args.name.clone().or(named).or(meant).ok_or(ServersError::NoName)?;
    Ok((name, definition))
}

/// Refuses flags that a definition of the registry leaves no place for.
fn no_values(args: &AddArgs) -> Result<(), ServersError> {
    match (args.env.is_empty() && args.cwd.is_none(), args.header.is_empty() && !args.sse) {
        (true, true) => Ok(()),
        (false, _) => Err(ServersError::OnlyCommand("--env or --cwd")),
        (_, false) => Err(ServersError::OnlyUrl("--header or --sse")),
    }
}

fn url(text: &str) -> Result<Url, ServersError> {
    let is_http = |url: &Url| matches!(url.scheme(), "http" | "https");
    let url = text.parse::<Url>().ok().filter(is_http).ok_or_else(|| ServersError::What(text.to_owned()))?;
    let in_query =
        url.query_pairs().any(|(name, value)| !value.contains("${") && is_credential(&name, &value));
    if in_query || url.password().is_some() || !url.username().is_empty() {
        return Err(ServersError::Visible("the URL".into()));
    }
    Ok(url)
}

/// Returns variables or headers. Values that were not given are asked for.
fn pairs(given: &[String], person: &Person) -> Result<Map<String, Value>, ServersError> {
    let mut pairs = Map::new();
    for text in given {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if !value.contains("${") && is_credential(name, value) => {
                return Err(ServersError::Visible(format!("the value of '{name}'")));
            }
            Some((name, value)) => (name, value.to_owned()),
            None => (text.as_str(), secret(text, person)?),
        };
        pairs.insert(name.into(), value.into());
    }
    Ok(pairs)
}

/// Asks for a value that is not shown.
fn secret(name: &str, person: &Person) -> Result<String, ServersError> {
    loop {
        let typed = person.secret(&format!("{name} (not shown): "));
        match typed.map_err(|source| ServersError::Value { name: name.to_owned(), source })? {
            Typed::Line(value) if !value.is_empty() => return Ok(value),
            Typed::Line(_) if person.is_there() => {}
            Typed::Stopped => return Err(ServersError::Stopped),
            Typed::Line(_) | Typed::End => return Err(ServersError::NoValue(name.to_owned())),
        }
    }
}
