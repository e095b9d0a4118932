//! `codebridge servers remove|enable|disable|import|export`: changes and copies of definitions.

use std::process::ExitCode;

use codebridge_runtimes::exec::{visible, visible_json, visible_line};

use super::ImportArgs;
use super::errors::CommandError;
use super::output::print;
use super::say::say;
use super::servers_error::ServersError;
use super::setup::client;
use crate::error::Exit;
use crate::settings::Environment;
use crate::setup::{Folders, Installation};
use crate::upstream::discovery::{ChangeError, Written};
use crate::upstream::{export as without_credentials, shell_word};
use crate::workspace::Workspace;

pub(super) async fn remove(workspace: &Workspace, name: &str) -> Result<ExitCode, CommandError> {
    let definitions = workspace.upstream.definitions();
    let source = definitions.remove(name).map_err(ServersError::from)?;
    print(&visible(&format!("removed '{name}' from {}\n", source.path.display()))).await?;
    if let Some(other) = definitions.snapshot().get(name).filter(|other| *other.name == *name) {
        let place = visible_line(&other.source.to_string());
        say(format_args!("note: {place} defines it too, and is used from now on"));
    }
    Ok(Exit::Success.into())
}

pub(super) async fn disable(workspace: &Workspace, name: &str) -> Result<ExitCode, CommandError> {
    let file = workspace.upstream.definitions().disable(name).map_err(ServersError::from)?;
    print(&visible(&format!("disabled '{name}' in {}\n", file.display()))).await?;
    Ok(Exit::Success.into())
}

pub(super) async fn enable(workspace: &Workspace, name: &str) -> Result<ExitCode, CommandError> {
    let file = workspace.upstream.definitions().enable(name).map_err(ServersError::from)?;
    print(&visible(&format!("enabled '{name}' in {}\n", file.display()))).await?;
    say_whether_used(workspace, name);
    Ok(Exit::Success.into())
}

/// Warns of a definition that is not used although somebody has just written it.
pub(super) fn say_whether_used(workspace: &Workspace, name: &str) {
    let snapshot = workspace.upstream.snapshot();
    let used = snapshot.get(name).is_some_and(|server| *server.name == *name);
    if !used
        && let Some(server) = snapshot.skipped(name)
        && let Err(why) = &server.definition
    {
        say(format_args!("warning: '{name}' is not used yet: {why}"));
    }
}

/// Copies the definitions of a client.
pub(super) async fn import(
    workspace: &Workspace,
    args: &ImportArgs,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    let folders = Folders::of_process(environment).ok_or(CommandError::NoHome)?;
    let Installation { client, file, .. } = Installation::find(client(&args.client)?, &folders);
    let title = client.title;
    let definitions = workspace.upstream.definitions();
    let written = definitions.written_in(&file);
    let written = written.map_err(|warning| ServersError::Import { client: title, warning })?;
    let is_there = |name: &&String| written.iter().any(|it| it.name == **name);
    if let Some(name) = args.names.iter().find(|name| !is_there(name)) {
        return Err(ServersError::NotInClient { client: title, name: name.clone() }.into());
    }
    let wanted = |it: &&Written| args.names.is_empty() || args.names.contains(&it.name);
    let mut copied = 0;
    for it in written.iter().filter(wanted) {
        let name = visible_line(&it.name);
        let skip = |why: &dyn std::fmt::Display| say(format_args!("skipped '{name}': {why}"));
        match (it.is_itself, it.problem) {
            (true, _) => skip(&"it is codebridge itself"),
            (false, Some(problem)) => skip(&problem),
            (false, None) => match definitions.copy(&it.name, &it.definition) {
                Ok(file) => {
                    copied += 1;
                    print(&visible(&format!("copied '{name}' to {}\n", file.display()))).await?;
                }
                Err(error @ (ChangeError::Exists { .. } | ChangeError::Definition { .. })) => skip(&error),
                Err(error) => return Err(ServersError::from(error).into()),
            },
        }
    }
    if copied == 0 {
        say(format_args!("no server of {title} was copied from {}", file.display()));
    }
    Ok(Exit::Success.into())
}

/// Prints definitions for other people and programs.
pub(super) async fn export(workspace: &Workspace, names: &[String]) -> Result<ExitCode, CommandError> {
    workspace.upstream.usable()?;
    let mut written = workspace.upstream.definitions().written();
    for name in names {
        if !written.iter().any(|it| it.name == *name) {
            return Err(ServersError::NotUsed(name.clone()).into());
        }
    }
    written.retain(|it| names.is_empty() || names.contains(&it.name));
    let exported = without_credentials(&written);
    let text = serde_json::to_string_pretty(&exported.document).map_err(std::io::Error::from)?;
    print(&(visible_json(&text) + "\n")).await?;
    if !exported.variables.is_empty() {
        let variables: Vec<String> = exported.variables.iter().map(|name| shell_word(name)).collect();
        say(format_args!(
            "hint: credentials are left out: set {} where the definitions are used",
            variables.join(", ")
        ));
    }
    Ok(Exit::Success.into())
}
