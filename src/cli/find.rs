//! `codebridge servers find`: searches an MCP registry. What it finds is somebody's claim, and is not tried.

use std::process::ExitCode;

use codebridge_runtimes::exec::visible_line;

use super::FindArgs;
use super::errors::CommandError;
use super::output::write;
use super::say::say;
use super::servers_error::ServersError;
use super::spinner::Spinner;
use crate::error::Exit;
use crate::upstream::registry::{Found, Listed, Need};
use crate::workspace::Workspace;

pub(super) async fn find(workspace: &Workspace, args: &FindArgs) -> Result<ExitCode, CommandError> {
    let words = args.words.join(" ");
    let mut spinner = Spinner::default();
    spinner.show("asking the registry".into());
    let found = workspace.upstream.registry().find(&words, args.limit.into()).await;
    spinner.clear();
    let Found { entries, left_out, has_more } = found.map_err(ServersError::from)?;
    let listed: Vec<Listed> = entries.iter().map(Listed::of).collect();
    if left_out > 0 {
        say(format_args!(
            "warning: {left_out} entries of the registry were not understood, and are left out"
        ));
    }
    if listed.is_empty() {
        say(format_args!("the registry has no server for '{words}'"));
    }
    let code = write(&args.form, &listed, listed.iter().map(text).collect(), Exit::Success).await?;
    if has_more && !args.form.json {
        say("hint: there are more: use other words, or raise --limit");
    }
    if let Some(first) = listed.iter().find(|server| !server.options.is_empty()).filter(|_| !args.form.json) {
        say(format_args!("hint: `codebridge servers add {}` adds one of them", first.name));
    }
    Ok(code)
}

fn text(server: &Listed) -> String {
    let mut text = format!("{} {}\n", server.name, server.version);
    let mut line = |words: &str| text.push_str(&format!("    {}\n", visible_line(words)));
    line(&server.description);
    let repository = server.repository.as_ref().map_or_else(String::new, |url| format!(", {url}"));
    line(&format!("published by {}{repository}", server.publisher));
    if server.deprecated {
        line("its publisher advises against it: deprecated");
    }
    for option in &server.options {
        line(&format!("{} ({}): {}", option.kind, option.transport, option.runs));
        if !option.needs.is_empty() {
            let needs: Vec<String> = option.needs.iter().map(need).collect();
            line(&format!("  needs {}", needs.join(", ")));
        }
    }
    for why in &server.unusable {
        line(&format!("cannot be added: {why}"));
    }
    text
}

/// Returns a need in a few words: `API_KEY (secret)`.
pub(super) fn need(need: &Need) -> String {
    match (need.required, need.secret) {
        (_, true) => format!("{} (secret)", need.name),
        (true, false) => need.name.clone(),
        (false, false) => format!("{} (optional)", need.name),
    }
}
