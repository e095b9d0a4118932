//! Why no registry provided an image: each address that was asked, and its answer.

use std::error::Error;
use std::io;
use std::time::Duration;

use oci_client::errors::{OciDistributionError, OciErrorCode};
use rustls::InvalidMessage;

use super::credentials::CredentialError;
use crate::manifest::ManifestError;
use crate::store::StoreError;

/// The reason why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Every address was asked, and none provided the image.
    #[error("cannot pull {typed}: {}", join(tried))]
    Refused {
        /// As the user typed it.
        typed: String,
        /// In full.
        name: String,
        /// The addresses, in the order in which they were asked.
        tried: Vec<Tried>,
    },
    #[error("cannot pull {0}: registries.conf blocks its registry")]
    Blocked(String),
}

/// One address that was asked.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Tried {
    /// Scheme and host.
    pub endpoint: String,
    /// Why it did not provide the image.
    pub why: Reason,
}

impl Tried {
    fn text(&self) -> String {
        let Self { endpoint, why } = self;
        let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host);
        match why {
            // The causes of these have words and hints of their own.
            Reason::Unreachable {
                failure: ConnectionFailure::PlainHttp | ConnectionFailure::Certificate,
                message,
            } => format!("{host} is unreachable by TLS: {message}"),
            Reason::Unreachable { failure: ConnectionFailure::Other, .. } => format!("{host} is unreachable"),
            Reason::Unauthorized { logged_in: true } => format!("{host} rejects the stored credentials"),
            Reason::Unauthorized { logged_in: false } => {
                format!("{host} wants a login, or has no such image")
            }
            Reason::NotFound => format!("{host} has no such image"),
            why => format!("{host}: {why}"),
        }
    }
}

/// The reason why an address did not provide an image.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// There is no connection, or it broke.
    #[error("{message}")]
    Unreachable { failure: ConnectionFailure, message: String },
    /// The registry asks for a login, or rejects the one it got.
    #[error("{}", if *.logged_in { "the registry rejects the stored credentials" } else { "login required" })]
    Unauthorized { logged_in: bool },
    #[error("not found")]
    NotFound,
    /// The registry answered with another error, or with something that is no answer.
    #[error("{message}")]
    Answer {
        /// The HTTP status, if it was one of an error.
        status: Option<u16>,
        message: String,
    },
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The content does not match its digest, or the store could not keep it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A cause of a failed connection that has a remedy of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFailure {
    /// The registry answers in plain HTTP where TLS was tried.
    PlainHttp,
    /// The registry's certificate is not trusted, or no certificate authority is installed.
    Certificate,
    /// It broke, or nothing came in time.
    Broken,
    /// Everything else.
    Other,
}

fn join(tried: &[Tried]) -> String {
    let mut parts: Vec<_> = tried.iter().map(ToString::to_string).collect();
    // A host may have been asked in two schemes.
    parts.dedup();
    parts.join("; ")
}

impl PullError {
    /// Returns what to do about it, for the most telling of the answers.
    pub(crate) fn hint(&self) -> Option<String> {
        let Self::Refused { name, tried, .. } = self else {
            return Some("see `blocked` in containers-registries.conf(5)".into());
        };
        let host = name.split('/').next().unwrap_or(name);
        tried.iter().filter_map(|tried| tried.why.remedy(host)).min().map(|(_, text)| text)
    }
}

impl Reason {
    /// Returns what helps against it, after a rank: of several refusals, the one with the lowest tells the most.
    fn remedy(&self, host: &str) -> Option<(u8, String)> {
        let (rank, text) = match self {
            Self::Credentials(
                CredentialError::Invalid { .. }
                | CredentialError::Encoding { .. }
                | CredentialError::NoTokenService,
            ) => {
                return Some((0, format!("log in again: `podman login {host}` or `docker login {host}`")));
            }
            // A registry does not tell strangers which images it has.
            Self::Unauthorized { .. } => {
                let text =
                    format!("check the name; if it is right: `podman login {host}` or `docker login {host}`");
                return Some((1, text));
            }
            Self::NotFound => (2, "check the name and the tag"),
            Self::Manifest(ManifestError::Platform { .. }) => {
                (3, "choose an image that is built for this machine")
            }
            Self::Store(error) if error.is_out_of_space() => {
                (4, "free disk space, for example with `codebridge image prune --all`")
            }
            Self::Manifest(_) | Self::Store(_) => {
                (5, "report it to the operator of the registry: its content is damaged")
            }
            Self::Answer { .. } if self.is_temporary() => {
                (6, "the registry is overloaded or limits requests: try again later")
            }
            Self::Credentials(_) | Self::Answer { .. } => return None,
            Self::Unreachable { failure: ConnectionFailure::PlainHttp, .. } => (
                7,
                "the registry seems to speak plain HTTP: use `codebridge image pull --plain-http`, or \
                 set `insecure = true` for it in containers-registries.conf(5)",
            ),
            Self::Unreachable { failure: ConnectionFailure::Certificate, .. } => (
                8,
                "install the certificate authorities (`apt-get install ca-certificates`), or put the \
                 registry's own into /etc/containers/certs.d/HOST/ca.crt",
            ),
            Self::Unreachable { .. } => (9, "check your connection, or use --image host:"),
        };
        Some((rank, text.into()))
    }

    /// Returns the reason for an answer with the status of an error.
    pub(crate) fn status(code: u16, message: &str) -> Self {
        Self::Answer { status: Some(code), message: short(&format!("{code} {message}")) }
    }

    /// Returns the reason for an answer that makes no sense.
    pub(crate) fn senseless(message: impl Into<String>) -> Self {
        Self::Answer { status: None, message: short(&message.into()) }
    }

    /// Returns the reason for an answer that did not come in time.
    pub(crate) fn slow(limit: Duration) -> Self {
        Self::interrupted(format!("no answer within {} s", limit.as_secs()))
    }

    /// Returns the reason for a connection that ended early.
    pub(crate) fn interrupted(message: String) -> Self {
        Self::Unreachable { failure: ConnectionFailure::Broken, message }
    }

    /// Returns the reason for an error of the connection.
    pub(crate) fn unreachable(error: &(dyn Error + 'static)) -> Self {
        let failure = match tls_error(error) {
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                ConnectionFailure::PlainHttp
            }
            Some(rustls::Error::InvalidCertificate(_)) => ConnectionFailure::Certificate,
            _ => ConnectionFailure::Other,
        };
        Self::Unreachable { failure, message: chain(error) }
    }

    /// Returns the reason for a client without certificates to verify a registry by.
    pub(crate) fn no_certificates(error: &(dyn Error + 'static)) -> Self {
        Self::Unreachable { failure: ConnectionFailure::Certificate, message: chain(error) }
    }

    /// Returns whether the same question may soon get another answer.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Answer { status, .. } => matches!(status, Some(429 | 500 | 502 | 503 | 504)),
            _ => false,
        }
    }

    /// Returns whether there was a registry that could answer.
    pub(crate) fn is_an_answer(&self) -> bool {
        !matches!(self, Self::Unreachable { .. })
    }

    /// Returns the reason for an error of the registry library.
    pub(crate) fn of(error: &OciDistributionError, logged_in: bool) -> Self {
        use OciDistributionError as E;
        match error {
            E::UnauthorizedError { .. } | E::AuthenticationFailure(_) => Self::Unauthorized { logged_in },
            E::ServerError { code: 401 | 403, .. } => Self::Unauthorized { logged_in },
            E::ServerError { code: 404, .. } | E::ImageManifestNotFoundError(_) => Self::NotFound,
            E::ServerError { code, message, .. } => Self::status(*code, message),
            E::RegistryError { envelope, .. } => {
                let has =
                    |codes: &[OciErrorCode]| envelope.errors.iter().any(|error| codes.contains(&error.code));
                if has(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                    Self::Unauthorized { logged_in }
                } else if has(&[
                    OciErrorCode::ManifestUnknown,
                    OciErrorCode::NameUnknown,
                    OciErrorCode::NotFound,
                    OciErrorCode::BlobUnknown,
                    OciErrorCode::ManifestBlobUnknown,
                ]) {
                    Self::NotFound
                } else if has(&[OciErrorCode::Toomanyrequests]) {
                    Self::status(429, &envelope.to_string())
                } else {
                    Self::senseless(envelope.to_string())
                }
            }
            E::RequestError(_) | E::IoError(_) => Self::unreachable(error),
            other => Self::senseless(other.to_string()),
        }
    }
}

/// Returns the TLS error among the causes of an error.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = error.downcast_ref() {
        return Some(tls);
    }
    // What an io error wraps is not its source.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => tls_error(inner),
        None => tls_error(error.source()?),
    }
}

/// Returns an error with its causes; libraries show the outermost alone, which rarely says why.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Some repeat what they wrap.
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    // The message has the address already.
    if parts.len() > 1 && parts[0].starts_with("error sending request") {
        parts.remove(0);
    }
    short(&parts.join(": "))
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_registry_becomes_its_reason() {
        let server = |code, message: &str| OciDistributionError::ServerError {
            code,
            url: "https://x/v2/".into(),
            message: message.into(),
        };
        let of = |error: &OciDistributionError| Reason::of(error, false);
        assert!(matches!(of(&server(404, "<html>")), Reason::NotFound));
        assert!(matches!(of(&server(403, "")), Reason::Unauthorized { logged_in: false }));
        assert!(of(&server(503, "busy\n")).is_temporary() && !of(&server(418, "")).is_temporary());
        let envelope = |code: &str| OciDistributionError::RegistryError {
            envelope: serde_json::from_str(&format!(r#"{{"errors":[{{"code":"{code}","message":"m"}}]}}"#))
                .unwrap(),
            url: String::new(),
        };
        assert!(matches!(of(&envelope("MANIFEST_UNKNOWN")), Reason::NotFound));
        assert!(matches!(of(&envelope("DENIED")), Reason::Unauthorized { .. }));
        assert!(of(&envelope("TOOMANYREQUESTS")).is_temporary());
        assert!(matches!(of(&envelope("UNSUPPORTED")), Reason::Answer { .. }));
    }

    #[test]
    fn a_refusal_lists_every_address_and_hints_at_the_remedy() {
        let tried = |endpoint: &str, why| Tried { endpoint: endpoint.into(), why };
        let error = PullError::Refused {
            typed: "quay.io/x:1".into(),
            name: "quay.io/x:1".into(),
            tried: vec![
                tried("https://mirror.example", Reason::interrupted("connection refused".into())),
                tried("https://quay.io", Reason::Unauthorized { logged_in: false }),
            ],
        };
        let text = error.to_string();
        assert!(
            text == "cannot pull quay.io/x:1: mirror.example: connection refused; quay.io wants a login, or has no such image",
            "{text}"
        );
        assert!(error.hint().unwrap().contains("podman login quay.io"));
    }

    #[test]
    fn the_hint_is_about_the_most_telling_answer() {
        let damaged = || {
            let why = "it leads to other indexes only".into();
            Reason::Manifest(ManifestError::Malformed { what: "index", why })
        };
        let unreachable = |text: &str| Reason::interrupted(text.into());
        let unreadable = || {
            let source = io::ErrorKind::PermissionDenied.into();
            Reason::Credentials(CredentialError::Read { path: "auth.json".into(), source })
        };
        let failed = |failure| Reason::Unreachable { failure, message: String::new() };
        for (reasons, expected) in [
            (vec![Reason::status(503, "busy"), unreachable("tls handshake eof")], "try again later"),
            (vec![damaged(), unreachable("tls handshake eof")], "its content is damaged"),
            (vec![failed(ConnectionFailure::PlainHttp)], "--plain-http"),
            (vec![failed(ConnectionFailure::Certificate)], "ca-certificates"),
            (vec![unreachable("connection refused")], "check your connection"),
            (vec![Reason::NotFound], "the name and the tag"),
            (vec![Reason::Credentials(CredentialError::NoTokenService), Reason::NotFound], "log in again"),
            (vec![unreadable(), Reason::NotFound], "the name and the tag"),
        ] {
            let tried = reasons.into_iter().map(|why| Tried { endpoint: "https://h".into(), why }).collect();
            let hint =
                PullError::Refused { typed: "h/a:1".into(), name: "h/a:1".into(), tried }.hint().unwrap();
            assert!(hint.contains(expected), "{hint}");
        }
    }
}
