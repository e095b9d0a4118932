//! `codebridge console`.

use std::process::ExitCode;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::ConsoleArgs;
use super::errors::CommandError;
use super::say::say;
use super::signals::Signals;
use crate::console;
use crate::error::Exit;
use crate::feed::Feed;
use crate::http::{self, Audience};
use crate::workspace::Bridge;

/// Serves the console of the user of this process, for all bridges with the same state folder.
pub(super) async fn console(bridge: Arc<Bridge>, args: ConsoleArgs) -> Result<ExitCode, CommandError> {
    let address = args.http.parse()?;
    let options = http::Options { address, tls: None, issuer: None, audience: Audience::Own };
    let signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let serving = http::serve(
        bridge,
        options,
        |site| console::routes(site, |workspace| Feed::of_bridges(&workspace.bridge.settings.state_dir)),
        |text| say(text),
        stop.clone(),
    );
    match signals.until_second(&stop, serving).await {
        (Some(served), _) => served.map(|()| Exit::Success.into()).map_err(CommandError::from),
        (None, signal) => Ok(signal.unwrap_or(Exit::Terminated).into()),
    }
}
