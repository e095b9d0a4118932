//! Posts what the exporters made. They run on threads of their own; the requests run on the runtime of the program.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

/// The port that collectors have for gRPC, which the bridge does not speak.
const GRPC_PORT: u16 = 4317;

/// Posts to a collector. A failure is warned about once.
#[derive(Debug, Clone)]
pub(super) struct Sender(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    limit: Duration,
    /// Made at the first export: to read the certificates of the system takes time.
    client: OnceCell<Client>,
    has_warned: AtomicBool,
    last_error: Mutex<Option<String>>,
}

/// Why a collector got nothing. No text contains a header or a body.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("could not create an HTTP client: {0}")]
    Client(String),
    #[error("{0}")]
    Connection(String),
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("it responded with HTTP {0}")]
    Status(StatusCode),
    #[error("the program is ending")]
    Ending,
}

impl Sender {
    pub(super) fn new(runtime: Handle, limit: Duration) -> Self {
        let (client, has_warned) = (OnceCell::new(), AtomicBool::new(false));
        Self(Arc::new(Inner { runtime, limit, client, has_warned, last_error: Mutex::default() }))
    }

    /// Returns why the last request failed; None if it did not.
    pub(super) fn last_error(&self) -> Option<String> {
        self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Warns that a collector gets nothing, unless that was said before.
    pub(super) fn warn(&self, collector: &str, why: &str, hint: &str) {
        if !self.0.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                collector,
                hint,
                error = why,
                "could not send telemetry, and will not warn about it again"
            );
        }
    }

    async fn send(self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let (parts, body) = request.into_parts();
        let url = shown(&parts.uri);
        let sent = self.post(parts, body).await;
        let failed = sent.as_ref().err().map(ToString::to_string);
        if let Some(why) = &failed {
            let hint = match url.contains(&format!(":{GRPC_PORT}/")) {
                true => {
                    "port 4317 is usually that of gRPC: the bridge speaks HTTP, which is usually on port 4318"
                }
                false => "check OTEL_EXPORTER_OTLP_ENDPOINT, or set OTEL_SDK_DISABLED=true",
            };
            self.warn(&url, why, hint);
        }
        *self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner) = failed;
        sent
    }

    async fn post(&self, parts: http::request::Parts, body: Bytes) -> Result<Response<Bytes>, SendError> {
        let mut headers = parts.headers;
        headers.remove(http::header::USER_AGENT);
        headers.values_mut().for_each(|value| value.set_sensitive(true));
        let request = self.client().await?.post(parts.uri.to_string()).headers(headers).body(body).send();
        // Nobody needs the body of the response.
        match tokio::time::timeout(self.0.limit, request).await {
            Ok(Ok(response)) if response.status().is_success() => Ok(Response::new(Bytes::new())),
            Ok(Ok(response)) => Err(SendError::Status(response.status())),
            Ok(Err(error)) => Err(SendError::Connection(innermost(&error.without_url()).to_string())),
            Err(_) => Err(SendError::TimedOut(self.0.limit)),
        }
    }

    async fn client(&self) -> Result<&Client, SendError> {
        let make = || async {
            let made = tokio::task::spawn_blocking(client).await.map_err(|_| SendError::Ending)?;
            made.map_err(|error| SendError::Client(innermost(&error).to_string()))
        };
        self.0.client.get_or_try_init(make).await
    }
}

fn client() -> reqwest::Result<Client> {
    // Another part of the program may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Headers with credentials go where they were meant to go.
    let builder = || {
        Client::builder()
            .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
    };
    // A system without certificate authorities can still use plain HTTP.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// Returns an address without its query, which may have a credential.
pub(super) fn shown(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{scheme}://{}{}", uri.authority().map_or("", |authority| authority.as_str()), uri.path())
}

/// Returns the cause of an error of `reqwest`, whose outer layers only say that there was an error.
fn innermost(error: &reqwest::Error) -> &dyn Error {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Sender {
    fn send_bytes<'a, 'f>(&'a self, request: Request<Bytes>) -> Sending<'f>
    where
        'a: 'f,
        Self: 'f,
    {
        let sending = self.0.runtime.spawn(self.clone().send(request));
        Box::pin(async move {
            let sent = sending.await.unwrap_or(Err(SendError::Ending));
            sent.map_err(HttpError::from)
        })
    }
}
