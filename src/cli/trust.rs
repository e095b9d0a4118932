//! `codebridge servers trust`: the approval of definitions in the working directory.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use codebridge_runtimes::exec::visible_line;

use super::errors::CommandError;
use super::output::print;
use crate::error::Exit;
use crate::upstream::discovery::{Proposal, Server, Skip};
use crate::workspace::Workspace;

/// Approves the definition of one server, or asks for each that is not approved yet.
pub(super) async fn trust(workspace: &Workspace, name: Option<String>) -> Result<ExitCode, CommandError> {
    match name {
        Some(name) => trust_one(workspace, &name).await?,
        None => trust_each(workspace).await?,
    }
    Ok(Exit::Success.into())
}

/// Shows a definition and approves it: whoever types the name wants it.
async fn trust_one(workspace: &Workspace, name: &str) -> Result<(), CommandError> {
    let waiting = untrusted(workspace);
    let Some((server, proposal)) = waiting.iter().find(|(server, _)| *server.name == *name) else {
        let server = workspace.upstream.server(name)?;
        let text = format!("'{}' needs no approval: it is in use ({})", server.name, server.source);
        return Ok(print(&format!("{}\n", visible_line(&text))).await?);
    };
    show(server, proposal).await?;
    approve(workspace, server, proposal).await
}

async fn trust_each(workspace: &Workspace) -> Result<(), CommandError> {
    let waiting = untrusted(workspace);
    if waiting.is_empty() {
        return Ok(print("no definition in this folder needs an approval\n").await?);
    }
    if !io::stdin().is_terminal() {
        let names = waiting.iter().map(|(server, _)| server.name.to_string()).collect();
        return Err(CommandError::NobodyToAsk { names });
    }
    for (server, proposal) in &waiting {
        show(server, proposal).await?;
        print("Trust this definition? [y/N] ").await?;
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            return Ok(());
        }
        if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            approve(workspace, server, proposal).await?;
        }
    }
    Ok(())
}

/// Returns the definitions that the user has not approved.
fn untrusted(workspace: &Workspace) -> Vec<(Arc<Server>, Arc<Proposal>)> {
    let snapshot = workspace.upstream.snapshot();
    let skipped = snapshot.skipped.iter();
    let waiting = skipped.filter_map(|server| match &server.definition {
        Err(Skip::Untrusted(proposal)) => Some((Arc::clone(server), Arc::clone(proposal))),
        _ => None,
    });
    waiting.collect()
}

async fn show(server: &Server, proposal: &Proposal) -> io::Result<()> {
    let source = visible_line(&server.source.to_string());
    print(&format!("{} ({source})\n{}\n", server.name, proposal.text)).await
}

async fn approve(workspace: &Workspace, server: &Server, proposal: &Proposal) -> Result<(), CommandError> {
    workspace.upstream.trust(&server.name, proposal)?;
    Ok(print("trusted in this folder, until the definition changes\n").await?)
}
