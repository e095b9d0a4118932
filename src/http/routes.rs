//! The paths of the listener. Each request is checked before anything else looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::body::{self, Answer};
use super::connections::{Connection, Connections};
use super::cors;
use super::credentials::{Credentials, Identity};
use super::guard::{self, Hosts, Refusal};
use super::metrics::{CONTENT_TYPE as METRICS_TYPE, Metrics};
use super::users::{MOST_SESSIONS, Users};
use crate::mcp::server::TaskCall;
use crate::tokens::Scope;

/// Where MCP is spoken.
pub(super) const MCP: &str = "/mcp";
/// Where clients look for the issuer: RFC 9728.
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// The header with the session of a client.
const SESSION: &str = "mcp-session-id";
/// The header with the version of the protocol. From this one on there are no sessions.
const VERSION: &str = "mcp-protocol-version";
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// What all requests have in common.
#[derive(Debug)]
pub(super) struct App {
    pub(super) users: Users,
    pub(super) credentials: Credentials,
    pub(super) hosts: Hosts,
    pub(super) metrics: Metrics,
    pub(super) connections: Arc<Connections>,
    /// The port of the listener.
    pub(super) port: Option<u16>,
    /// Whether the listener has a certificate.
    pub(super) is_tls: bool,
    pub(super) is_ending: AtomicBool,
}

const ENDING: Refusal = Refusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    reason: "ending",
    text: "the bridge is shutting down",
};
pub(super) const TOO_MANY_REQUESTS: Refusal = Refusal {
    status: StatusCode::TOO_MANY_REQUESTS,
    reason: "requests",
    text: "this user has too many requests under way",
};
pub(super) const TOO_MANY_CONNECTIONS: Refusal = Refusal {
    status: StatusCode::TOO_MANY_REQUESTS,
    reason: "connections",
    text: "this user has too many connections under way",
};
const TOO_MANY_SESSIONS: Refusal = Refusal {
    status: StatusCode::TOO_MANY_REQUESTS,
    reason: "sessions",
    text: "this token has too many sessions open: end one with DELETE",
};

/// Returns all paths, and those of pages, which only pages of the same origin can use.
pub(super) fn router(app: Arc<App>, pages: Router) -> Router {
    let pages = pages.layer(middleware::from_fn_with_state(Arc::clone(&app), check_page));
    Router::new()
        .route(MCP, any(mcp))
        .route("/metrics", get(metrics))
        .route(RESOURCE, get(resource))
        .route(&format!("{RESOURCE}{MCP}"), get(resource))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), check_host))
        .merge(pages.with_state(()))
        // Whoever asks these two reaches the bridge under any name.
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), check))
        .with_state(app)
}

/// Checks the head of every request, and counts its answer.
async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // A length beside it is dropped, as the standard demands. A proxy may have used it: what follows is not read.
    let has_encoding = request.headers().contains_key(TRANSFER_ENCODING);
    let mut response = match guard::check_head(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => app.refuse(refusal, request.headers(), request.extensions()),
    };
    app.metrics.count_answer(response.status());
    let headers = response.headers_mut();
    if has_encoding {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn check_host(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if let Err(refusal) = app.hosts.check(request.headers()) {
        return app.refuse(refusal, request.headers(), request.extensions());
    }
    let is_preflight = cors::is_preflight(request.method(), request.headers());
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = match is_preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), origin, is_preflight);
    }
    response
}

async fn check_page(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    match app.hosts.check(headers).and_then(|()| guard::check_page(request.method(), headers)) {
        Ok(()) => next.run(request).await,
        Err(refusal) => app.refuse(refusal, headers, request.extensions()),
    }
}

impl App {
    /// Returns the answer to a request that is refused.
    pub(super) fn refuse(&self, refusal: Refusal, headers: &HeaderMap, extensions: &Extensions) -> Response {
        self.metrics.count_refusal(refusal.reason);
        let peer = extensions.get::<Connection>().and_then(Connection::peer).map(tracing::field::display);
        // Debug output is escaped, and the head has a length.
        let named = |name| headers.get(name).map(tracing::field::debug);
        let (host, origin) = match refusal.reason {
            "host" => (named(HOST), None),
            "origin" => (named(HOST), named(ORIGIN)),
            _ => (None, None),
        };
        tracing::info!(
            reason = refusal.reason,
            status = refusal.status.as_u16(),
            peer,
            host,
            origin,
            "refused a request"
        );
        let mut response = (refusal.status, format!("{}\n", refusal.text)).into_response();
        if refusal.wants_credential() || refusal.error_code().is_some() {
            let challenge = self.challenge(refusal, headers);
            if let Ok(challenge) = HeaderValue::from_str(&challenge) {
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
        }
        if refusal == TOO_MANY_CONNECTIONS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&refusal.status) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }

    /// Says how to get a credential: RFC 6750, and RFC 9728 for clients that ask an issuer.
    fn challenge(&self, refusal: Refusal, headers: &HeaderMap) -> String {
        let mut challenge = "Bearer realm=\"codebridge\"".to_owned();
        if let Some(code) = refusal.error_code() {
            challenge.push_str(&format!(", error=\"{code}\""));
        }
        if self.credentials.issuer.is_some()
            && let Some(base) = self.base(headers)
        {
            challenge.push_str(&format!(", resource_metadata=\"{base}{RESOURCE}{MCP}\""));
        }
        challenge
    }

    /// Returns the start of the URLs under which the client of a request reaches the bridge. The host was checked before.
    pub(super) fn base(&self, headers: &HeaderMap) -> Option<String> {
        let host = headers.get(HOST)?.to_str().ok()?;
        Some(format!("{}://{host}", if self.is_https(headers) { "https" } else { "http" }))
    }

    /// Whether the client of a request reaches the bridge over HTTPS.
    pub(super) fn is_https(&self, headers: &HeaderMap) -> bool {
        // A proxy says so; a client that says so only misleads itself.
        self.is_tls || headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https")
    }

    /// Returns who sends a request, and notes it at the connection.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        scope: Scope,
    ) -> Result<Identity, Refusal> {
        let identity = self.credentials.check(headers, scope).await?;
        match extensions.get::<Connection>() {
            Some(connection) if !connection.introduce(&identity.principal) => Err(TOO_MANY_CONNECTIONS),
            _ => Ok(identity),
        }
    }
}

async fn mcp(State(app): State<Arc<App>>, request: Request) -> Response {
    let (headers, extensions) = (request.headers().clone(), request.extensions().clone());
    match answer(&app, request).await {
        Ok(response) => response,
        Err(refusal) => app.refuse(refusal, &headers, &extensions),
    }
}

/// Hands a request to the service of its credential.
async fn answer(app: &App, request: Request) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let identity = app.identify(&parts.headers, &parts.extensions, Scope::Mcp).await?;
    let user = app.users.of(&identity);
    let permit = Arc::clone(&user.requests).try_acquire_owned().map_err(|_| TOO_MANY_REQUESTS)?;
    let service = user.service(&identity.credential);
    user.workspace().upstream.is_reached_at(app.base(&parts.headers));
    let (body, held) = body::read(body, &user.held, body::ARRIVAL)
        .await
        .map_err(|body::Refused(status, text)| Refusal { status, reason: "body", text })?;
    // The body decides, whatever the headers say.
    if opens_session(&parts.headers) || is_initialize(&body) {
        if app.is_ending.load(Ordering::Relaxed) {
            return Err(ENDING);
        }
        if service.sessions().await >= MOST_SESSIONS {
            return Err(TOO_MANY_SESSIONS);
        }
    }
    // The credential goes no further.
    parts.headers.remove(http::header::AUTHORIZATION);
    // A call goes on without its answer where the client can come back for it.
    parts.extensions.insert(held.clone());
    if let Some(task) = TaskCall::in_body(&body) {
        parts.extensions.insert(task);
    }
    let response = service.answer(Request::from_parts(parts, Body::from(body))).await;
    Ok(response.map(|body| Answer::of(body, (permit, held), identity.until)))
}

/// Whether a request may open a session.
fn opens_session(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION).and_then(|version| version.to_str().ok());
    let has_session = headers.get(SESSION).is_some_and(|session| session.to_str().is_ok());
    !has_session && version.is_none_or(|version| version < WITHOUT_SESSIONS)
}

/// Whether a message is the one that opens a session.
fn is_initialize(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
    }
    serde_json::from_slice::<Message<'_>>(body).is_ok_and(|message| message.method == "initialize")
}

async fn healthy(request: Request) -> &'static str {
    stays(&request);
    "ok\n"
}

async fn ready(State(app): State<Arc<App>>, request: Request) -> Response {
    stays(&request);
    match (app.is_ending.load(Ordering::Relaxed), app.credentials.tokens.unread()) {
        (false, 0) => "ready\n".into_response(),
        // Some tokens cannot be read, which the log says. Everybody else is served.
        (false, _) => "ready, degraded\n".into_response(),
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response(),
    }
}

/// Lets the connection of a load balancer stay, which asks for nothing else.
fn stays(request: &Request) {
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.renew();
    }
}

async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    match app.identify(&parts.headers, &parts.extensions, Scope::Metrics).await {
        Ok(_) => {
            let text = app.metrics.text(&app.users, &app.connections).await;
            ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response()
        }
        Err(refusal) => app.refuse(refusal, &parts.headers, &parts.extensions),
    }
}

/// Names the issuer whose tokens are accepted.
async fn resource(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let (Some(issuer), Some(base)) = (&app.credentials.issuer, app.base(&headers)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // What clients ask the issuer for is what it writes into the tokens.
    let own = format!("{base}{MCP}");
    let resource = json!({
        "resource": issuer.resource().unwrap_or(&own),
        "authorization_servers": [issuer.url()],
        "scopes_supported": Scope::ALL.map(Scope::name),
        "bearer_methods_supported": ["header"],
        "resource_name": "codebridge",
    });
    ([(CONTENT_TYPE, "application/json")], resource.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::address::Listener;

    #[tokio::test]
    async fn a_load_balancer_keeps_its_connection_as_long_as_it_asks() {
        let introduction = Duration::from_secs(2);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::with_times(introduction, Duration::from_secs(600));
        let (stop, router) = (CancellationToken::new(), Router::new().route("/healthz", get(healthy)));
        let listener = Listener::Tcp(listener, address);
        let asking = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            tokio::time::sleep(introduction / 2).await;
            let asked = Instant::now();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert!(answer.ends_with(b"ok\n"), "{}", String::from_utf8_lossy(&answer));
            assert!(asked.elapsed() >= introduction, "{:?}", asked.elapsed());
            stop.cancel();
        };
        tokio::join!(asking, connections.accept(&listener, None, router, stop.clone()));
    }
}
