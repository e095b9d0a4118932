//! `codebridge serve`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::complain;
use super::signals::Signals;
use crate::error::Exit;
use crate::mcp::stdio;
use crate::server::{Client, Connection, serve as serve_connection};
use crate::workspace::Workspace;

/// Serves `client`, which answers the questions of the servers of `workspace`.
pub(super) async fn serve(workspace: &Workspace, client: Arc<Client>) -> ExitCode {
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
    let _passing_on =
        AbortOnDropHandle::new(tokio::spawn(Arc::clone(&client).pass_on(workspace.upstream.events())));
    let serving = async {
        let sessions = Arc::new(workspace.sessions.clone());
        let settings = &workspace.bridge.settings;
        let served = serve_connection(sessions, client, settings, connection, stop.clone()).await;
        workspace.close().await;
        served
    };
    match signals.until_told_twice(&stop, serving).await {
        (Some(Ok(())), _) => Exit::Fine.into(),
        (Some(Err(error)), _) => complain(&error, None, Exit::Io),
        (None, told) => told.unwrap_or(Exit::Terminated).into(),
    }
}
