//! The life of a listener: start, changes of tokens, and an end without a broken run.

use std::path::{PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::address::{Address, Listener};
use super::connections::Connections;
use super::credentials::Credentials;
use super::error::HttpError;
use super::guard::Hosts;
use super::metrics::Metrics;
use super::oidc::Issuer;
use super::record::{Listening, Record};
use super::routes::{self, App};
use super::site::Site;
use super::tls;
use super::users::Users;
use crate::tokens::{Kept, Refused, TokenList, Tokens, Unusable, new_secret};
use crate::workspace::Bridge;

/// How often tokens are looked at: the sessions of a revoked one end within this time.
const LOOK: Duration = Duration::from_secs(1);
/// How long runs may take to end when the bridge is told to end.
const DRAIN: Duration = Duration::from_secs(25);
/// How often it is looked whether they have.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// How HTTP is served.
#[derive(Debug)]
pub struct Options {
    pub address: Address,
    /// The files of the certificate and of its key.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub issuer: Option<Issuer>,
    pub audience: Audience,
}

/// For whom it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Everybody with a token, each in a workspace of their own.
    Principals,
    /// The user of this process: the pages of the workspace in the state folder itself, with a token that is made at start.
    Own,
}

/// Serves until `stop`, then lets runs end, and ends everything else. `pages` are served on the same listener, `say` tells the
/// person where the bridge is.
///
/// # Errors
/// The address or the certificate cannot be used.
pub async fn serve(
    bridge: Arc<Bridge>,
    options: Options,
    pages: impl FnOnce(Site) -> Router,
    say: impl Fn(&str),
    stop: CancellationToken,
) -> Result<(), HttpError> {
    let tls = options.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
    let is_own = options.audience == Audience::Own;
    let (credentials, secret) = credentials(&bridge, options.issuer, is_own)?;
    let listener = options.address.listen().await?;
    match (is_own, &secret) {
        (true, Some(secret)) => announce_pages(&listener, secret, &say),
        _ => announce(&listener, tls.is_some(), secret.as_deref(), &say),
    }
    let address = match &listener {
        Listener::Tcp(_, address) => Some(*address),
        Listener::Unix(..) => None,
    };
    let _record = match is_own {
        true => None,
        false => record(&bridge, &listener, &options.tls, &credentials),
    };
    let app = Arc::new(App {
        users: Users::new(Arc::clone(&bridge), is_own),
        credentials,
        hosts: Hosts::new(address, &bridge.settings.allowed_hosts),
        metrics: Metrics::default(),
        connections: Connections::new(),
        port: address.map(|address| address.port()),
        is_tls: tls.is_some(),
        is_ending: AtomicBool::new(false),
    });
    let _looking = AbortOnDropHandle::new(tokio::spawn(look_after(Arc::clone(&app))));
    // Clients that have a run under way may need another connection, to answer a question or to cancel it.
    let closed = CancellationToken::new();
    let router = routes::router(Arc::clone(&app), pages(Site::new(Arc::clone(&app))));
    let accepting = app.connections.accept(&listener, tls, router, closed.clone());
    let ending = async {
        stop.cancelled().await;
        drain(&app).await;
        closed.cancel();
    };
    tokio::join!(accepting, ending);
    if let Listener::Unix(_, path) = &listener {
        // It may have been replaced by another bridge's; that one listens elsewhere then.
        let _ = std::fs::remove_file(path);
    }
    drop(listener);
    app.users.stop_services();
    tokio::join!(app.connections.end(), app.users.close());
    bridge.close().await;
    Ok(())
}

/// Returns the credentials that hold, and the token that was made for this process.
fn credentials(
    bridge: &Bridge,
    issuer: Option<Issuer>,
    is_own: bool,
) -> Result<(Credentials, Option<String>), HttpError> {
    let tokens = Tokens::at(&bridge.settings.state_dir);
    let TokenList { kept, unusable } = tokens.list()?;
    for Unusable { id, why } in &unusable {
        tracing::warn!(token = %id, why, "a token cannot be used");
    }
    let has_tokens = kept.iter().any(Kept::is_valid) || !unusable.is_empty() || issuer.is_some();
    let mut credentials = Credentials::new(tokens, Refused::at(&bridge.settings.state_dir), issuer);
    let secret = if is_own || !has_tokens { Some(new_secret()?) } else { None };
    match &secret {
        Some(secret) if is_own => credentials.accept_once(secret),
        Some(secret) => credentials.accept_until_end(secret),
        None => {}
    }
    Ok((credentials, secret))
}

/// Says where the pages of the user of this process are.
fn announce_pages(listener: &Listener, secret: &str, say: &impl Fn(&str)) {
    match listener {
        Listener::Tcp(_, address) => {
            say(&format!("open http://{address}/console/login?token={secret}"));
        }
        Listener::Unix(_, path) => {
            say(&format!("listening on unix:{}", path.display()));
            say(&format!("open /console/login?token={secret} there"));
        }
    }
    say("this address signs one browser in; Ctrl-C ends the console");
}

/// Records the listener for `codebridge doctor`.
fn record(
    bridge: &Bridge,
    listener: &Listener,
    tls: &Option<(PathBuf, PathBuf)>,
    credentials: &Credentials,
) -> Option<Record> {
    let address = match listener {
        Listener::Tcp(_, address) => address.to_string(),
        Listener::Unix(_, path) => {
            format!("unix:{}", absolute(path).unwrap_or_else(|_| path.clone()).display())
        }
    };
    let certificate = tls.as_ref().map(|(certificate, _)| certificate.clone());
    let issuer = credentials.issuer.as_ref().map(|issuer| issuer.url().to_owned());
    let listening = Listening { address, pid: std::process::id(), certificate, issuer };
    let written = Record::write(&bridge.settings.state_dir, &listening);
    written.inspect_err(|error| tracing::debug!(%error, "could not record the listener")).ok()
}

/// Says where the bridge listens, and the token that was made for this process.
fn announce(listener: &Listener, is_tls: bool, secret: Option<&str>, say: &impl Fn(&str)) {
    let scheme = if is_tls { "https" } else { "http" };
    match listener {
        Listener::Tcp(_, address) => {
            say(&format!("listening on {scheme}://{address}{}", routes::MCP));
            say(&format!("console: {scheme}://{address}/console"));
            if !is_tls && !address.ip().is_loopback() {
                tracing::warn!(
                    "tokens and code cross the network unencrypted: use --tls-cert and --tls-key, or a proxy with a certificate"
                );
            }
        }
        Listener::Unix(_, path) => say(&format!("listening on unix:{}", path.display())),
    }
    if let Some(secret) = secret {
        say(&format!("token, until this process ends: {secret}"));
        say("there are no others: `codebridge token add NAME` makes one that stays");
    }
}

/// Notices tokens that were revoked or have expired.
async fn look_after(app: Arc<App>) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.users.look_after(&app.credentials).await;
    }
}

/// Refuses new runs, and waits for those that there are.
async fn drain(app: &App) {
    app.is_ending.store(true, Ordering::Relaxed);
    app.users.quotas.close();
    let running = app.users.quotas.load().running;
    if running > 0 {
        tracing::info!(running, seconds = DRAIN.as_secs(), "waiting for runs to end");
    }
    let ended = async {
        while app.users.quotas.load().running > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    if tokio::time::timeout(DRAIN, ended).await.is_err() {
        tracing::warn!(
            running = app.users.quotas.load().running,
            "runs did not end in time, and are interrupted"
        );
    }
}
