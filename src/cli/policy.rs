//! `codebridge policy`: the rules of what code may do.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::{print, write};
use super::policy_args::PolicyCommand;
use super::say::say;
use super::signals::until_stopped;
use super::spinner::Spinner;
use super::tools::split;
use super::{Form, policy_changes};
use crate::error::Exit;
use crate::policy::{
    Annotations, Caller, Checked, Effect, Expectations, LOCAL, PolicyError, Rules, START, Shapes, ToolCall,
    Unaccepted, Verdict, differences, unaccepted,
};
use crate::upstream::{RawArguments, UpstreamError};
use crate::workspace::Workspace;

pub(super) async fn policy(workspace: &Workspace, command: PolicyCommand) -> Result<ExitCode, CommandError> {
    match command {
        PolicyCommand::Init { force } => init(workspace.policy.source().path(), force),
        PolicyCommand::Check { tool: None, form, .. } => check_file(workspace, &form).await,
        PolicyCommand::Check { tool: Some(tool), arguments, session, form } => {
            check(workspace, &tool, arguments, session.as_deref(), &form).await
        }
        PolicyCommand::Test { file, form } => test(workspace, &file, &form).await,
        PolicyCommand::Accept { server, yes } => accept(workspace, &server, yes).await,
    }
}

/// Writes the file to start with.
fn init(file: &Path, force: bool) -> Result<ExitCode, CommandError> {
    let failed = |error| CommandError::Write { file: file.to_path_buf(), error };
    if let Some(folder) = file.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    if file.exists() && !force {
        return Err(CommandError::PolicyExists(file.to_path_buf()));
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(0o600);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(file).and_then(|mut new| new.write_all(START.as_bytes())).map_err(failed)?;
    say(format_args!("wrote {}; it holds from now on", file.display()));
    say("hint: read it, then try `codebridge policy check SERVER.TOOL`");
    Ok(Exit::Success.into())
}

/// Returns the rules of the policy.
fn rules_of(workspace: &Workspace) -> Result<std::sync::Arc<Rules>, CommandError> {
    let rules = workspace.policy.rules().map_err(CommandError::Policy)?;
    rules.ok_or_else(|| CommandError::NoPolicy(workspace.policy.source().path().to_path_buf()))
}

async fn check_file(workspace: &Workspace, form: &Form) -> Result<ExitCode, CommandError> {
    let rules = rules_of(workspace)?;
    let (file, warnings) = (rules.file(), warnings(workspace, &rules));
    let noun = if rules.len() == 1 { "rule" } else { "rules" };
    let mut text = format!("{}: {} {noun}\n", file.display(), rules.len());
    warnings.iter().for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
    write(form, &json!({ "file": file, "rules": rules.len(), "warnings": warnings }), text, Exit::Success)
        .await
}

fn warnings(workspace: &Workspace, rules: &Rules) -> Vec<String> {
    let snapshot = workspace.upstream.snapshot();
    let names = snapshot.servers.iter().chain(&snapshot.skipped).map(|server| &*server.name);
    rules.warnings(&names.collect::<Vec<_>>())
}

/// Says what would happen, without making the call. The server is started for the annotations of the tool.
async fn check(
    workspace: &Workspace,
    name: &str,
    arguments: String,
    session: Option<&str>,
    form: &Form,
) -> Result<ExitCode, CommandError> {
    let (server, Some(tool)) = split(workspace, name) else {
        return Err(CommandError::ToolName(name.to_owned()));
    };
    let arguments = RawArguments::new(arguments).map_err(CommandError::Arguments)?;
    let rules = rules_of(workspace)?;
    let stop = CancellationToken::new();
    let mut spinner = Spinner::default();
    spinner.show(format!("asking {server} for its tools"));
    let asked = async {
        let server = workspace.upstream.server(server)?;
        workspace.upstream.tool(&server, tool, &stop).await.map(|tool| (server, tool))
    };
    let asked = until_stopped(workspace, &stop, asked).await?;
    spinner.clear();
    let (server, tool, annotations, unaccepted) = match asked {
        Ok((server, found)) => {
            let pins = workspace.policy.pins().read(&server.name).map_err(CommandError::Pins)?;
            let unaccepted = pins.and_then(|pins| unaccepted(&pins, &found.name, &found.shape()));
            (server.name.to_string(), found.name.clone(), found.annotations(), unaccepted)
        }
        Err(error @ (UpstreamError::Unknown { .. } | UpstreamError::UnknownTool { .. })) => {
            return Err(error.into());
        }
        Err(error) => {
            say(format_args!("warning: the annotations of the tool are unknown: {error}"));
            (server.to_owned(), tool.to_owned(), Annotations::of(None), None)
        }
    };
    let call = ToolCall { server: &server, tool: &tool, annotations, arguments: arguments.as_bytes() };
    let verdict = rules.of_call(&call, &Caller { session, principal: LOCAL });
    // A rule that denies comes first.
    let unaccepted = unaccepted.filter(|_| verdict.effect() != Effect::Deny);
    let (effect, why) = match unaccepted {
        None => (verdict.effect(), verdict_text(&verdict)),
        Some(unaccepted) => (Effect::Deny, unaccepted_text(unaccepted, &server, &verdict)),
    };
    let value = json!({
        "server": server,
        "tool": tool,
        "effect": effect.to_string(),
        "rule": verdict.rule().map(|rule| json!({ "file": rule.file, "line": rule.line, "reason": rule.reason })),
        "why": why,
    });
    let text = format!("{why}\n");
    write(form, &value, text, Exit::Success).await
}

fn unaccepted_text(unaccepted: Unaccepted, server: &str, verdict: &Verdict) -> String {
    let what = match unaccepted {
        Unaccepted::New => "is new",
        Unaccepted::Changed => "has changed",
    };
    format!(
        "deny: the tool {what} since the tools of '{server}' were accepted; after `codebridge policy accept {server}`: {}",
        verdict_text(verdict)
    )
}

fn verdict_text(verdict: &Verdict) -> String {
    let reason =
        |reason: &Option<_>| reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    match verdict {
        Verdict::Allow(rule) => format!("allow: the rule at {rule} allows it"),
        Verdict::Ask(rule) => format!("ask: the rule at {rule} asks you{}", reason(&rule.reason)),
        Verdict::Deny(denial) => format!("deny: {denial}"),
    }
}

async fn test(workspace: &Workspace, file: &Path, form: &Form) -> Result<ExitCode, CommandError> {
    let failed = |error: io::Error| CommandError::Policy(PolicyError::unreadable(file, &error));
    let text = fs::read_to_string(file).map_err(failed)?;
    let expectations = Expectations::parse(file, &text, LOCAL).map_err(CommandError::Policy)?;
    let rules = rules_of(workspace)?;
    let checked = expectations.check(&rules);
    let wrong: Vec<&Checked> = checked.iter().filter(|check| !check.holds()).collect();
    let line = |check: &&Checked| {
        let Checked { line, what, expected, verdict } = check;
        format!("{}:{line}: {what}: expected {expected}, but {}\n", file.display(), verdict_text(verdict))
    };
    let mut text: String = wrong.iter().map(line).collect();
    text.push_str(&format!("{} of {} hold\n", checked.len() - wrong.len(), checked.len()));
    let value = |check: &Checked| -> Value {
        json!({
            "line": check.line,
            "what": check.what,
            "expected": check.expected.to_string(),
            "effect": check.verdict.effect().to_string(),
            "holds": check.holds(),
        })
    };
    let values: Vec<Value> = checked.iter().map(value).collect();
    let exit = if wrong.is_empty() { Exit::Success } else { Exit::Differs };
    write(form, &values, text, exit).await
}

/// Shows how the tools of a server differ from those that were accepted, and accepts them.
async fn accept(workspace: &Workspace, name: &str, yes: bool) -> Result<ExitCode, CommandError> {
    let stop = CancellationToken::new();
    let mut spinner = Spinner::default();
    spinner.show(format!("asking {name} for its tools"));
    let asked = async {
        let server = workspace.upstream.server(name)?;
        workspace.upstream.shapes(&server, &stop).await.map(|shapes| (server, shapes))
    };
    let asked = until_stopped(workspace, &stop, asked).await?;
    spinner.clear();
    let (server, now) = asked?;
    let pins = workspace.policy.pins();
    let accepted = pins.read(&server.name).map_err(CommandError::Pins)?;
    let is_new = accepted.is_none();
    let accepted: Shapes = accepted.unwrap_or_default();
    let changes = differences(&accepted, &now);
    if changes.is_empty() && !is_new {
        say(format_args!("nothing to accept: the tools of '{}' are as they were", server.name));
        return Ok(Exit::Success.into());
    }
    print(&policy_changes::text(&changes)).await?;
    if !yes && !confirm(&server.name)? {
        say("nothing was accepted");
        return Ok(Exit::Success.into());
    }
    pins.write(&server.name, &now).map_err(CommandError::Pins)?;
    say(format_args!("accepted the {} tools of '{}'", now.len(), server.name));
    Ok(Exit::Success.into())
}

fn confirm(server: &str) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        return Err(CommandError::Unaccepted(server.to_owned()));
    }
    say(format_args!("Accept these tools of '{server}'? [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
