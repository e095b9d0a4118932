//! `codebridge setup`: registers codebridge in an MCP client.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use codebridge_runtimes::exec::{visible, visible_json};
use serde_json::json;

use super::SetupArgs;
use super::errors::CommandError;
use super::output::{columns, print_now};
use super::say::say;
use crate::error::Exit;
use crate::nearest::nearest;
use crate::settings::Environment;
use crate::setup::{CLIENTS, Change, Client, Folders, Installation, State, is_in_a_cache, snippet};

pub(super) fn setup(args: &SetupArgs, environment: &Environment) -> Result<ExitCode, CommandError> {
    let folders = Folders::of_process(environment).ok_or(CommandError::NoHome)?;
    let command = own_path()?;
    match &args.client {
        None => list(&folders, &command, args.json)?,
        Some(name) => {
            let installation = Installation::find(client(name)?, &folders);
            if args.print {
                say(format_args!("for {}:", installation.file.display()));
                write(&snippet(installation.client, &command))?;
            } else {
                register(&installation, &command, args.yes)?;
            }
        }
    }
    Ok(Exit::Success.into())
}

pub(super) fn client(name: &str) -> Result<&'static Client, CommandError> {
    let is_this = |client: &&Client| client.name == name || client.title.eq_ignore_ascii_case(name);
    CLIENTS.iter().find(is_this).ok_or_else(|| CommandError::UnknownClient {
        name: name.to_owned(),
        nearest: nearest(name, CLIENTS.iter().map(|client| client.name)),
    })
}

/// Returns the path of this program as clients start it: desktop programs have another search path than a shell.
fn own_path() -> Result<String, CommandError> {
    let path = std::env::current_exe().map_err(CommandError::OwnPath)?;
    let not_text = |path| io::Error::other(format!("{path:?} is not UTF-8"));
    path.into_os_string().into_string().map_err(|path| CommandError::OwnPath(not_text(path)))
}

fn list(folders: &Folders<'_>, command: &str, json: bool) -> Result<(), CommandError> {
    let found = CLIENTS.iter().map(|client| Installation::find(client, folders));
    let found: Vec<(Installation, State)> = found
        .map(|installation| {
            let state = installation.state(command);
            (installation, state)
        })
        .collect();
    if json {
        let clients: Vec<_> = found
            .iter()
            .map(|(Installation { client, file, .. }, state)| {
                json!({ "client": client.name, "title": client.title, "state": state, "file": file.to_string_lossy() })
            })
            .collect();
        let text = serde_json::to_string_pretty(&clients).map_err(io::Error::from)?;
        return write(&(visible_json(&text) + "\n"));
    }
    let rows = found.iter().map(|(installation, state)| {
        let file = installation.file.display().to_string();
        vec![installation.client.name.to_owned(), state.text().to_owned(), file]
    });
    write(&visible(&columns(&["CLIENT", "STATE", "FILE"], rows)))?;
    for (installation, _) in found.iter().filter(|(_, state)| *state == State::Unreadable) {
        if let Err(error) = installation.plan(command) {
            say(format_args!("warning: {error}"));
        }
    }
    if let Some((first, _)) = found.iter().find(|(_, state)| *state == State::NotRegistered) {
        say(format_args!(
            "hint: `codebridge setup {}` registers codebridge in {}",
            first.client.name, first.client.title
        ));
    }
    Ok(())
}

fn register(installation: &Installation, command: &str, yes: bool) -> Result<(), CommandError> {
    let title = installation.client.title;
    let file = installation.file.display();
    match installation.plan(command)? {
        Change::None => {
            return write(&visible(&format!("{title} starts this codebridge already: {file}\n")));
        }
        Change::Add { .. } => {
            say(format_args!(
                "{title} gets this entry in {file}:\n\n{}",
                snippet(installation.client, command)
            ));
        }
        Change::Replace { name, old, new, .. } => {
            say(format_args!("'{name}' in {file} starts\n\n  {old}\n\nand is to start\n\n  {new}\n"));
        }
    }
    if !installation.is_found {
        say(format_args!("warning: {title} was not found here; the file is made for it"));
    }
    if is_in_a_cache(Path::new(command)) {
        say(
            "warning: uvx or npx may delete this program, and then the client cannot start it; install codebridge first",
        );
    }
    if !yes && !confirm(&file.to_string())? {
        return write("nothing was changed\n");
    }
    let done = match installation.register(command)? {
        Some(backup) => format!("changed {file}; the old file is {}\n", backup.display()),
        None => format!("wrote {file}\n"),
    };
    write(&visible(&format!("{done}restart {title} to use it\n")))
}

fn confirm(file: &str) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        return Err(CommandError::Unconfirmed(file.to_owned()));
    }
    write("Write the file? [Y/n] ")?;
    let mut answer = String::new();
    // The end of the input is no answer.
    let is_answered = io::stdin().lock().read_line(&mut answer)? > 0;
    Ok(is_answered && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn write(text: &str) -> Result<(), CommandError> {
    Ok(print_now(text.as_bytes())?)
}
