//! `codebridge saved`: the functions that code has saved.

use std::process::ExitCode;

use codebridge_runtimes::exec::visible_line;
use serde_json::json;

use super::SavedCommand;
use super::errors::CommandError;
use super::output::{columns, write};
use super::say::say;
use crate::error::Exit;
use crate::saved::{SavedTool, SavedTools, Trouble};
use crate::settings::Settings;

/// Characters of a signature in a table.
const SHOWN: usize = 80;

pub(super) async fn saved(settings: &Settings, command: SavedCommand) -> Result<ExitCode, CommandError> {
    let saved = SavedTools::at(&settings.state_dir.value);
    match command {
        SavedCommand::Ls(form) => {
            let list = saved.list();
            write(&form, &list, table(&list), Exit::Success).await
        }
        SavedCommand::Show { name, version, form } => {
            let tool = saved.find(&name)?;
            let version = version.unwrap_or(tool.version);
            let source = saved.version(&name, version)?;
            let mut value = json!(tool);
            value["version"] = version.into();
            value["source"] = source.as_str().into();
            if !form.json {
                say(about(&tool, version));
            }
            write(&form, &value, with_newline(source), Exit::Success).await
        }
        SavedCommand::Rm { names } => remove(&saved, &names),
    }
}

fn table(list: &[SavedTool]) -> String {
    if list.is_empty() {
        return "no saved functions\n".into();
    }
    let row = |tool: &SavedTool| {
        let mut signature: String = tool.details.signature.chars().take(SHOWN).collect();
        if signature.len() < tool.details.signature.len() {
            signature.push('…');
        }
        vec![
            tool.name.clone(),
            tool.version.to_string(),
            tool.saved.strftime("%F").to_string(),
            state(tool),
            if tool.details.servers.is_empty() { "-".into() } else { tool.details.servers.join(", ") },
            visible_line(&signature),
        ]
    };
    columns(&["NAME", "VERSION", "SAVED", "STATE", "SERVERS", "SIGNATURE"], list.iter().map(row))
}

fn state(tool: &SavedTool) -> String {
    match &tool.trouble {
        None => "ready".into(),
        Some(Trouble::NameTaken) => "name is taken".into(),
        Some(Trouble::TooLong) => "too long".into(),
        Some(Trouble::Unreadable(_)) => "unreadable".into(),
        Some(Trouble::Unapproved) => "needs approval".into(),
    }
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

fn remove(saved: &SavedTools, names: &[String]) -> Result<ExitCode, CommandError> {
    let mut errors = Vec::new();
    for name in names {
        match saved.remove(name) {
            Ok(1) => say(format_args!("removed {name}")),
            Ok(versions) => say(format_args!("removed {name} with {} earlier versions", versions - 1)),
            Err(error) => errors.push(CommandError::from(error)),
        }
    }
    // The last one is reported where all errors are, with its hint.
    let last = errors.pop();
    errors.iter().for_each(|error| say(format_args!("error: {error}")));
    last.map_or_else(|| Ok(Exit::Success.into()), Err)
}
