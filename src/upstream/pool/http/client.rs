//! The HTTP client and its errors.

use std::error::Error;
use std::io;
use std::sync::{Arc, OnceLock};

use codebridge_runtimes::exec::visible_line;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rustls::CertificateError;

use super::turns::{Reading, Turns};
use crate::upstream::discovery::HttpOptions;
use crate::upstream::http_client::{CertificateFileError, builder, plain_builder};
use crate::upstream::login::LoginError;

/// Redirects that are followed.
const MOST_REDIRECTS: usize = 10;
/// Bytes that are read of the body of an error response.
const LONGEST_ERROR: usize = 16 << 10;
/// Characters of that body that are shown.
const SHOWN: usize = 300;

/// Why an HTTP request failed. None of the texts contains a URL.
#[derive(Debug, thiserror::Error)]
pub(in crate::upstream) enum HttpError {
    #[error("could not create an HTTP client: {}", innermost(.0))]
    Client(Arc<reqwest::Error>),
    /// There is no response, or only a part of one.
    #[error("{0}")]
    Connection(String),
    /// Nothing was sent.
    #[error("its TLS certificate is not accepted: {why}")]
    Certificate {
        why: String,
        /// Whether the certificate of its issuer would help.
        is_unknown: bool,
    },
    #[error("it responded with HTTP {status}{body}")]
    Status {
        status: StatusCode,
        /// The start of the body, after a colon.
        body: String,
    },
    /// Nothing was sent.
    #[error("{0}")]
    Login(LoginError),
    #[error(transparent)]
    CertificateFile(CertificateFileError),
    #[error("it responded with {0} instead of a message")]
    ContentType(String),
    #[error("its response is longer than {0} bytes")]
    TooLong(usize),
    /// The first event of the older transport is missing.
    #[error("its stream names no endpoint for messages")]
    NoEndpoint,
}

impl HttpError {
    /// Whether the response is one that a server of the other transport would give.
    pub(in crate::upstream::pool) fn suggests_other_transport(&self) -> bool {
        let status = match self {
            Self::Status { status, .. } => *status,
            Self::ContentType(_) => return true,
            _ => return false,
        };
        matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
    }
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if let Some(refused) = certificate_error(&error) {
            return refused;
        }
        let stage = if error.is_connect() { "could not connect" } else { "the connection failed" };
        Self::Connection(format!("{stage}: {}", innermost(&error)))
    }
}

/// Returns the cause of an error of `reqwest`, whose outer layers only say that there was an error.
fn innermost(error: &reqwest::Error) -> &dyn Error {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

/// Returns why the certificate of a server was refused, if it was. `io::Error` hides the error in it from `source`.
fn certificate_error(error: &reqwest::Error) -> Option<HttpError> {
    let mut at: Option<&dyn Error> = Some(error);
    while let Some(error) = at {
        if let Some(rustls::Error::InvalidCertificate(refused)) = error.downcast_ref() {
            let is_unknown = matches!(refused, CertificateError::UnknownIssuer);
            return Some(HttpError::Certificate { why: why_refused(refused), is_unknown });
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        at = inner.map_or_else(|| error.source(), |inner| Some(inner));
    }
    None
}

fn why_refused(refused: &CertificateError) -> String {
    match refused {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host name".into()
        }
        CertificateError::UnknownIssuer => "its issuer is unknown".into(),
        CertificateError::Revoked => "it is revoked".into(),
        // The error of `webpki` is in it: `Other(OtherError(CaUsedAsEndEntity))`.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is that of an authority, as many self-signed ones are; make one with CA:FALSE".into()
        }
        other => other.to_string(),
    }
}

/// Returns our error in one that passed through the layers of `rmcp`.
pub(in crate::upstream::pool) fn http_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a HttpError> {
    match error.downcast_ref::<StreamableHttpError<HttpError>>() {
        Some(StreamableHttpError::Client(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// Returns the message of an error that passed through the layers of `rmcp`.
pub(in crate::upstream::pool) fn message_of(error: &(dyn Error + 'static)) -> Option<String> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error.to_string());
        }
        match error.downcast_ref::<StreamableHttpError<HttpError>>() {
            Some(StreamableHttpError::Client(error)) => return Some(error.to_string()),
            Some(other) => return Some(other.to_string()),
            None => at = error.source(),
        }
    }
    None
}

/// Returns the client that all connections share, or one with the certificates of a definition.
pub(in crate::upstream) fn client(url: &str, options: &HttpOptions) -> Result<Client, HttpError> {
    static VERIFYING: OnceLock<Result<Client, Arc<reqwest::Error>>> = OnceLock::new();
    static WITHOUT_AUTHORITIES: OnceLock<Result<Client, Arc<reqwest::Error>>> = OnceLock::new();
    if options.ca_file.is_some() || options.client_cert.is_some() {
        let own = builder(options, true).map_err(HttpError::CertificateFile)?;
        let made = own.redirect(same_origin_only()).build();
        return made.map_err(|error| HttpError::Client(Arc::new(error)));
    }
    let common = || plain_builder().redirect(same_origin_only());
    let made = VERIFYING.get_or_init(|| common().build().map_err(Arc::new));
    let is_plain = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    let made = if made.is_err() && is_plain {
        // The system has no certificate authorities, and plain HTTP needs none.
        WITHOUT_AUTHORITIES.get_or_init(|| common().tls_certs_only([]).build().map_err(Arc::new))
    } else {
        made
    };
    made.clone().map_err(HttpError::Client)
}

/// Follows redirects that keep the message and the origin: credentials travel with it.
fn same_origin_only() -> Policy {
    Policy::custom(|attempt| {
        let keeps_message = matches!(attempt.status().as_u16(), 307 | 308);
        let same_origin =
            attempt.previous().last().is_some_and(|before| before.origin() == attempt.url().origin());
        if keeps_message && same_origin && attempt.previous().len() <= MOST_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// Returns the headers of a definition, which was refused if one of them was invalid.
pub(super) fn header_map(headers: &[(String, String)]) -> HeaderMap {
    let header = |(name, value): &(String, String)| {
        let mut value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    headers.iter().filter_map(header).collect()
}

/// Whether the body is of a type, whatever its parameters.
pub(super) fn is_of_type(response: &Response, wanted: &str) -> bool {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| {
        value.split(';').next().is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted))
    })
}

/// Returns the error for a body of the wrong type.
pub(super) fn unexpected_type(response: &Response) -> HttpError {
    let value =
        response.headers().get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    HttpError::ContentType(value.map_or_else(|| "no content type".into(), |value| format!("'{value}'")))
}

/// Reads a body up to a limit; None when there is more.
pub(super) async fn body(
    response: &mut Response,
    limit: usize,
    reading: &mut Reading,
) -> Result<Option<Vec<u8>>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        reading.add(chunk.len()).await;
        if bytes.len() + chunk.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

/// Returns the error for an error response, and its body.
pub(super) async fn error_response(mut response: Response) -> (HttpError, Vec<u8>) {
    let status = response.status();
    let is_page = is_of_type(&response, "text/html");
    let mut reading = Turns::default().reading();
    let bytes = body(&mut response, LONGEST_ERROR, &mut reading).await.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    let shown = if text.is_empty() || is_page {
        String::new()
    } else {
        let end = text.char_indices().nth(SHOWN).map_or(text.len(), |(at, _)| at);
        format!(": {}", visible_line(&text[..end]))
    };
    (HttpError::Status { status, body: shown }, bytes)
}
