//! `codebridge serve`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::ServeArgs;
use super::errors::CommandError;
use super::say::say;
use super::signals::Signals;
use crate::console;
use crate::error::Exit;
use crate::feed::Feed;
use crate::http::{self, Audience, Issuer};
use crate::mcp::stdio;
use crate::server::{Connection, serve as serve_connection};
use crate::workspace::{Bridge, Workspace};

/// Serves the client on standard input and output.
pub(super) async fn serve(workspace: &Workspace) -> Result<ExitCode, CommandError> {
    let (input, output, signals) = (stdio::input()?, stdio::output()?, Signals::listen()?);
    let connection = Connection { input, output, hung_up: stdio::output_hung_up() };
    if io::stdin().is_terminal() {
        say("waiting for an MCP client on standard input; to run code, use `codebridge exec -c CODE`");
    }
    let stop = CancellationToken::new();
    let serving = async {
        let (sessions, events) = (Arc::new(workspace.sessions.clone()), workspace.upstream.events());
        let settings = &workspace.bridge.settings;
        let feed = Feed::of_workspace(workspace);
        let served = tokio::select! {
            served = serve_connection(sessions, events, settings, connection, stop.clone()) => served,
            // Consoles only look: the bridge serves its client whether they can or not.
            never = async { feed.offer(&settings.state_dir.value).await; std::future::pending().await } => never,
        };
        workspace.close().await;
        served
    };
    match signals.until_second(&stop, serving).await {
        (Some(served), _) => served.map(|()| Exit::Success.into()).map_err(CommandError::from),
        (None, signal) => Ok(signal.unwrap_or(Exit::Terminated).into()),
    }
}

/// Serves many users over HTTP, each in a workspace of its own.
pub(super) async fn serve_http(bridge: Arc<Bridge>, args: ServeArgs) -> Result<ExitCode, CommandError> {
    let ServeArgs { http, tls_cert, tls_key, oidc_issuer, audience } = args;
    let issuer = oidc_issuer.zip(audience).map(|(url, audience)| Issuer::new(&url, &audience)).transpose()?;
    let address = http.unwrap_or_default().parse()?;
    let options =
        http::Options { address, tls: tls_cert.zip(tls_key), issuer, audience: Audience::Principals };
    let signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let serving = http::serve(
        bridge,
        options,
        |site| console::routes(site, Feed::of_workspace),
        |text| say(text),
        stop.clone(),
    );
    match signals.until_second(&stop, serving).await {
        (Some(served), _) => served.map(|()| Exit::Success.into()).map_err(CommandError::from),
        (None, signal) => Ok(signal.unwrap_or(Exit::Terminated).into()),
    }
}
