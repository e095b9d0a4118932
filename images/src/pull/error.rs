//! Why no registry gave an image: each address that was asked, and what it said.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use oci_client::errors::{OciDistributionError, OciErrorCode};

use crate::manifest::ManifestError;
use crate::store::StoreError;

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Every address was asked, and none gave it.
    #[error("image '{name}' cannot be pulled: {}", said(tried))]
    Refused {
        /// The image's full name.
        name: String,
        /// Where it was asked for, in order.
        tried: Vec<Tried>,
    },
    /// The list of registries forbids this one.
    #[error("image '{0}' cannot be pulled: registries.conf blocks its registry")]
    Blocked(String),
}

/// One address that was asked.
#[derive(Debug)]
pub struct Tried {
    /// The address.
    pub endpoint: String,
    /// What came of it.
    pub why: Reason,
}

/// Why an address did not give an image.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// It does not answer, or stopped to.
    #[error("{0}")]
    Unreachable(String),
    /// It wants to know who asks, or does not like it.
    #[error("{}", if *.known { "it refuses the credentials that are stored for it" } else { "it wants a login" })]
    Unauthorized {
        /// Whether there are credentials for it.
        known: bool,
    },
    /// It does not have the image.
    #[error("not found")]
    NotFound,
    /// It says something else.
    #[error("{0}")]
    Answer(String),
    /// Credentials could not be read.
    #[error("{0}")]
    Credentials(String),
    /// What it gives is of no use here.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// What it gives is not what its digest promises, or could not be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn said(tried: &[Tried]) -> String {
    let parts: Vec<_> = tried.iter().map(|tried| format!("{}: {}", tried.endpoint, tried.why)).collect();
    parts.join("; ")
}

impl PullError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let Self::Refused { name, tried } = self else {
            return Some("see `blocked` in containers-registries.conf(5)".into());
        };
        let host = name.split('/').next().unwrap_or(name);
        let any = |test: fn(&Reason) -> bool| tried.iter().any(|tried| test(&tried.why));
        if any(|why| matches!(why, Reason::Unauthorized { .. })) {
            // A registry does not tell strangers what it has.
            return Some(format!(
                "check the name; if it is right: `podman login {host}` or `docker login {host}`"
            ));
        }
        if any(|why| matches!(why, Reason::NotFound)) {
            return Some("check the name and the tag".into());
        }
        if any(|why| matches!(why, Reason::Manifest(ManifestError::Platform { .. }))) {
            return Some("take an image that is built for this machine".into());
        }
        if any(|why| matches!(why, Reason::Store(error) if error.is_out_of_space())) {
            return Some("make room, for example with `codebridge image prune --all`".into());
        }
        if any(|why| matches!(why, Reason::Manifest(_) | Reason::Store(_))) {
            return Some(
                "the registry gives something else than it promises: whoever runs it can mend that".into(),
            );
        }
        if any(|why| matches!(why, Reason::Answer(_)) && why.may_pass()) {
            return Some("the registry has too much to do, or wants fewer requests: try again later".into());
        }
        // What TLS makes of an answer in plain words.
        if any(|why| matches!(why, Reason::Unreachable(text) if text.contains("InvalidContentType"))) {
            return Some(
                "it seems to speak plain HTTP: `codebridge image pull --plain-http`, or `insecure = true` for it in \
                 containers-registries.conf(5)"
                    .into(),
            );
        }
        if any(|why| matches!(why, Reason::Unreachable(text) if text.contains("certificate"))) {
            return Some(
                "install the certificates of authorities (`apt-get install ca-certificates`), or put the registry's \
                 own into /etc/containers/certs.d/HOST/ca.crt"
                    .into(),
            );
        }
        any(|why| matches!(why, Reason::Unreachable(_))).then(|| {
            "check the network and HTTPS_PROXY, or take an image from a file: `--image oci-archive:FILE`"
                .into()
        })
    }

    /// Whether an address gave the image and the store could not keep it.
    pub fn is_out_of_space(&self) -> bool {
        let Self::Refused { tried, .. } = self else { return false };
        tried.iter().any(|tried| matches!(&tried.why, Reason::Store(error) if error.is_out_of_space()))
    }
}

impl Reason {
    /// It answers with another status than success.
    pub(super) fn answer(code: u16, message: &str) -> Self {
        Self::Answer(short(&format!("{code} {message}")))
    }

    /// It took too long to answer.
    pub(super) fn slow(limit: Duration) -> Self {
        Self::Unreachable(format!("no answer within {} s", limit.as_secs()))
    }

    /// Whether the same question may get another answer soon.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Answer(text) => {
                ["429", "500", "502", "503", "504"].iter().any(|code| text.starts_with(code))
            }
            _ => false,
        }
    }

    /// Whether there was a registry that could answer.
    pub(super) fn is_an_answer(&self) -> bool {
        !matches!(self, Self::Unreachable(_))
    }

    /// What the client library's error comes down to.
    pub(super) fn of(error: &OciDistributionError, known: bool) -> Self {
        use OciDistributionError as E;
        match error {
            E::UnauthorizedError { .. } | E::AuthenticationFailure(_) => Self::Unauthorized { known },
            E::ServerError { code: 401 | 403, .. } => Self::Unauthorized { known },
            E::ServerError { code: 404, .. } | E::ImageManifestNotFoundError(_) => Self::NotFound,
            E::ServerError { code, message, .. } => Self::answer(*code, message),
            E::RegistryError { envelope, .. } => {
                let has =
                    |codes: &[OciErrorCode]| envelope.errors.iter().any(|error| codes.contains(&error.code));
                if has(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                    Self::Unauthorized { known }
                } else if has(&[
                    OciErrorCode::ManifestUnknown,
                    OciErrorCode::NameUnknown,
                    OciErrorCode::NotFound,
                    OciErrorCode::BlobUnknown,
                    OciErrorCode::ManifestBlobUnknown,
                ]) {
                    Self::NotFound
                } else if has(&[OciErrorCode::Toomanyrequests]) {
                    Self::Answer(format!("429 {}", short(&envelope.to_string())))
                } else {
                    Self::Answer(short(&envelope.to_string()))
                }
            }
            E::RequestError(_) | E::IoError(_) => Self::Unreachable(chain(error)),
            other => Self::Answer(short(&other.to_string())),
        }
    }
}

/// An error with all that it came from; libraries show the outermost alone, which rarely says why.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
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
    // The address is told anyway.
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

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_registries_are_told_apart() {
        let server = |code, message: &str| OciDistributionError::ServerError {
            code,
            url: "https://x/v2/".into(),
            message: message.into(),
        };
        let of = |error: &OciDistributionError| Reason::of(error, false);
        assert!(matches!(of(&server(404, "<html>")), Reason::NotFound));
        assert!(matches!(of(&server(403, "")), Reason::Unauthorized { known: false }));
        assert!(of(&server(503, "busy\n")).may_pass() && !of(&server(418, "")).may_pass());
        let envelope = |code: &str| OciDistributionError::RegistryError {
            envelope: serde_json::from_str(&format!(r#"{{"errors":[{{"code":"{code}","message":"m"}}]}}"#))
                .unwrap(),
            url: String::new(),
        };
        assert!(matches!(of(&envelope("MANIFEST_UNKNOWN")), Reason::NotFound));
        assert!(matches!(of(&envelope("DENIED")), Reason::Unauthorized { .. }));
        assert!(of(&envelope("TOOMANYREQUESTS")).may_pass());
        assert!(matches!(of(&envelope("UNSUPPORTED")), Reason::Answer(_)));
    }

    #[test]
    fn a_refusal_lists_every_address_and_what_to_do() {
        let tried = |endpoint: &str, why| Tried { endpoint: endpoint.into(), why };
        let error = PullError::Refused {
            name: "quay.io/x:1".into(),
            tried: vec![
                tried("https://mirror.example", Reason::Unreachable("connection refused".into())),
                tried("https://quay.io", Reason::Unauthorized { known: false }),
            ],
        };
        let text = error.to_string();
        assert!(
            text.ends_with("https://mirror.example: connection refused; https://quay.io: it wants a login"),
            "{text}"
        );
        assert!(error.hint().unwrap().contains("podman login quay.io"));
    }

    #[test]
    fn the_hint_is_about_what_went_wrong() {
        let promises = || {
            let why = "its indexes lead to other indexes only".into();
            Reason::Manifest(ManifestError::Malformed { what: "index", why })
        };
        let unreachable = |text: &str| Reason::Unreachable(text.into());
        for (reasons, expected) in [
            (vec![Reason::answer(503, "busy"), unreachable("tls handshake eof")], "try again later"),
            (vec![promises(), unreachable("tls handshake eof")], "something else than it promises"),
            (vec![unreachable("received corrupt message of type InvalidContentType")], "--plain-http"),
            (vec![unreachable("connection refused")], "HTTPS_PROXY"),
            (vec![Reason::NotFound], "the name and the tag"),
        ] {
            let tried = reasons.into_iter().map(|why| Tried { endpoint: "https://h".into(), why }).collect();
            let hint = PullError::Refused { name: "h/a:1".into(), tried }.hint().unwrap();
            assert!(hint.contains(expected), "{hint}");
        }
    }
}
