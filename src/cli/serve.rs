//! `codebridge serve`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::complain;
use super::signals::Signals;
use crate::error::Exit;
use crate::mcp::stdio;
use crate::server::{Connection, serve as serve_connection};
use crate::workspace::Workspace;

/// Serves the client on standard input and output.
pub(super) async fn serve(workspace: &Workspace) -> ExitCode {
    let connected = || -> io::Result<_> { Ok((stdio::input()?, stdio::output()?, Signals::listen()?)) };
    let (input, output, signals) = match connected() {
        Ok(connected) => connected,
        Err(error) => return complain(&error, None, Exit::Io),
    };
    let connection = Connection { input, output, hung_up: stdio::output_hung_up() };
    if io::stdin().is_terminal() {
        tracing::info!(
            "waiting for an MCP client on standard input; to run code by hand: codebridge exec -c CODE"
        );
    }
    let stop = CancellationToken::new();
    let serving = async {
        let (sessions, events) = (Arc::new(workspace.sessions.clone()), workspace.upstream.events());
        let settings = &workspace.bridge.settings;
        let served = serve_connection(sessions, events, settings, connection, stop.clone()).await;
        workspace.close().await;
        served
    };
    match signals.until_told_twice(&stop, serving).await {
        (Some(Ok(())), _) => Exit::Success.into(),
        (Some(Err(error)), _) => complain(&error, None, Exit::Io),
        (None, told) => told.unwrap_or(Exit::Terminated).into(),
    }
}
