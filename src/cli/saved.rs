//! `codebridge saved`: the functions that code has saved.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use codebridge_runtimes::exec::{visible, visible_line};
use serde_json::{Value, json};

use super::errors::CommandError;
use super::folder::Folder;
use super::output::{columns, print, write};
use super::say::say;
use super::{SavedArgs, SavedCommand, saved_test};
use crate::audit::{Approved, Audit, RunFacts, folder_in};
use crate::error::Exit;
use crate::policy::LOCAL;
use crate::saved::{Details, NewTool, SavedTool, SavedTools, Skill, State, Trouble, skill_name};
use crate::settings::Settings;
use crate::tokens::PrincipalName;
use crate::upstream::catalog::Schemas;
use crate::upstream::shell_word;
use crate::workspace::{Workspace, folder_of};

/// Characters of a signature in a table.
const SHOWN: usize = 80;

pub(super) async fn saved(
    SavedArgs { principal, command }: SavedArgs,
    open: impl FnOnce() -> Workspace,
    settings: &Settings,
) -> Result<ExitCode, CommandError> {
    let (folder, principal) = match principal {
        None => (settings.state_dir.value.clone(), None),
        Some(name) => {
            let name: PrincipalName = name.parse().map_err(CommandError::TokenName)?;
            let folder = folder_of(&settings.state_dir.value, name.as_str());
            if !folder.is_dir() {
                return Err(CommandError::UnknownUser(name.to_string()));
            }
            (folder, Some(name))
        }
    };
    let saved = SavedTools::at(&folder);
    let open = || match &principal {
        None => open(),
        Some(name) => Workspace::of_principal(open().bridge, name.as_str()),
    };
    match command {
        SavedCommand::Ls(form) => {
            let (list, schemas) = (saved.list(), schemas(open).await);
            if let Some(changed) = list.iter().find(|tool| tool.trouble == Some(Trouble::Unapproved)) {
                let path = saved.path_of(&changed.name).to_string_lossy().into_owned();
                let command = format!("codebridge saved import {}", shell_word(&path));
                say(format_args!(
                    "hint: the source of {} has changed since you approved it: `{command}`",
                    changed.name
                ));
            }
            let states: Vec<State> = list.iter().map(|tool| state(tool, &schemas)).collect();
            if let Some((first, _)) = list
                .iter()
                .zip(&states)
                .find(|(tool, state)| **state == State::NeedsTest && tool.example.is_some())
            {
                say(format_args!(
                    "hint: a tool that {0} uses has changed; run its example: `codebridge saved test {0}`",
                    first.name
                ));
            }
            let value: Vec<Value> =
                list.iter().zip(&states).map(|(tool, state)| fields(tool, *state)).collect();
            write(&form, &value, table(&list, &states), Exit::Success).await
        }
        SavedCommand::Show { name, version, form } => {
            let tool = saved.find(&name)?;
            let version = version.unwrap_or(tool.version);
            let source = saved.version(&name, version)?;
            let mut value = fields(&tool, state(&tool, &schemas(open).await));
            value["version"] = version.into();
            value["source"] = source.as_str().into();
            if !form.json {
                say(about(&tool, version));
            }
            write(&form, &value, with_newline(source), Exit::Success).await
        }
        SavedCommand::Export { name, to, force } => export(&saved.readable(&name)?, &to, force),
        SavedCommand::Import { path, yes } => {
            let audit = Audit::at(folder_in(&folder), settings.audit.value);
            let name = principal.as_ref().map_or_else(|| LOCAL.into(), PrincipalName::shared);
            let facts = RunFacts::of_command("codebridge saved import", name);
            let imported = import(&saved, &path, yes, &audit, facts).await;
            audit.close().await;
            imported
        }
        SavedCommand::Test { names, form } => {
            let tools = saved_test::chosen(&saved, &names)?;
            if tools.is_empty() {
                say("note: no saved function has an example");
            }
            saved_test::test(&open(), &saved, &tools, &form).await
        }
        SavedCommand::Rm { names } => remove(&saved, &names),
    }
}

fn table(list: &[SavedTool], states: &[State]) -> String {
    if list.is_empty() {
        return "no saved functions\n".into();
    }
    let row = |(tool, state): (&SavedTool, &State)| {
        let mut signature: String = tool.details.signature.chars().take(SHOWN).collect();
        if signature.len() < tool.details.signature.len() {
            signature.push('…');
        }
        vec![
            tool.name.clone(),
            tool.version.to_string(),
            tool.saved.strftime("%F").to_string(),
            state.to_string(),
            if tool.details.servers.is_empty() { "-".into() } else { tool.details.servers.join(", ") },
            visible_line(&signature),
        ]
    };
    columns(&["NAME", "VERSION", "SAVED", "STATE", "SERVERS", "SIGNATURE"], list.iter().zip(states).map(row))
}

/// Returns what the catalogue has of the servers. None is started.
async fn schemas(open: impl FnOnce() -> Workspace) -> Schemas {
    let workspace = open();
    let schemas = workspace.upstream.known_schemas().await;
    workspace.close().await;
    schemas
}

fn state(tool: &SavedTool, schemas: &Schemas) -> State {
    tool.state(|server, name| schemas.digest(server, name))
}

fn fields(tool: &SavedTool, state: State) -> Value {
    let mut value = json!(tool);
    value["state"] = json!(state);
    value
}

/// Returns what is said of a version beside its source.
fn about(tool: &SavedTool, version: u32) -> String {
    let earlier: Vec<String> = tool.earlier.iter().map(u32::to_string).collect();
    let others = match (version == tool.version, earlier.is_empty()) {
        (true, true) => "the only one".to_owned(),
        (true, false) => format!("earlier ones: {}", earlier.join(", ")),
        (false, _) => format!("the current one is {}", tool.version),
    };
    format!("note: this is version {version} of {}; {others}", tool.name)
}

fn with_newline(mut source: String) -> String {
    if !source.ends_with('\n') {
        source.push('\n');
    }
    source
}

fn export(tool: &SavedTool, to: &Path, force: bool) -> Result<ExitCode, CommandError> {
    let folder = Folder::create(&to.join(skill_name(&tool.name)), force)?;
    let mut files = Vec::new();
    for (path, content) in Skill::files(tool) {
        let mut file = folder.file(path.as_bytes())?;
        file.write(content.as_bytes())?;
        files.push(file);
    }
    for file in files {
        say(format_args!("wrote {}", file.finish()?.display()));
    }
    Ok(Exit::Success.into())
}

/// Shows a function, and saves it if the person approves.
async fn import(
    saved: &SavedTools,
    path: &Path,
    yes: bool,
    audit: &Audit,
    facts: RunFacts,
) -> Result<ExitCode, CommandError> {
    let Skill { name, source, example, file } = Skill::read(path)?;
    let known = saved.find(&name).ok();
    let details = Details::scanned(&name, &source);
    print(&shown(&name, &source, example.as_deref(), &file)).await?;
    if visible(&source) != source {
        say("warning: the source has characters that cannot be seen; they are shown as \u{fffd}");
    }
    if !details.servers.is_empty() {
        say(format_args!("note: it uses MCP servers: {}", details.servers.join(", ")));
    }
    if let Some(known) = &known {
        say(format_args!("note: it takes the place of version {} of your function {name}", known.version));
    }
    if !yes && !asked(&name).await? {
        say("note: nothing was imported");
        return Ok(Exit::Success.into());
    }
    // What was imported before, and is approved again, keeps its example.
    let example = example.or_else(|| known.and_then(|known| known.example));
    let new = NewTool { details, example, is_imported: true, ..NewTool::default() };
    let facts = RunFacts { code_sha256: audit.digest_of(&source), ..facts };
    let line = Approved::new(Arc::new(facts), "function", &name, "imported");
    audit.approved(line).await.map_err(CommandError::Unrecorded)?;
    saved.save(&name, &source, new)?;
    say(format_args!("imported {name}: every new session defines it, as long as its source stays the same"));
    Ok(Exit::Success.into())
}

fn shown(name: &str, source: &str, example: Option<&str>, file: &Path) -> String {
    let mut text = format!(
        "# {name}, from {}\n{}",
        visible_line(&file.to_string_lossy()),
        with_newline(visible(source))
    );
    if let Some(example) = example {
        text.push_str(&format!(
            "\n# its example, which `codebridge saved test` runs\n{}",
            with_newline(visible(example))
        ));
    }
    text + "\n"
}

async fn asked(name: &str) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        return Err(CommandError::UnapprovedImport(name.to_owned()));
    }
    print("Define this function in every session? [y/N] ").await?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn remove(saved: &SavedTools, names: &[String]) -> Result<ExitCode, CommandError> {
    let mut errors = Vec::new();
    for name in names {
        match saved.remove(name) {
            Ok(1) => say(format_args!("removed {name}")),
            Ok(2) => say(format_args!("removed {name} with 1 earlier version")),
            Ok(versions) => say(format_args!("removed {name} with {} earlier versions", versions - 1)),
            Err(error) => errors.push(CommandError::from(error)),
        }
    }
    // The last one is reported where all errors are, with its hint.
    let last = errors.pop();
    errors.iter().for_each(|error| say(format_args!("error: {error}")));
    last.map_or_else(|| Ok(Exit::Success.into()), Err)
}
