//! Who a request is from.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use super::guard::Refusal;
use super::known_tokens::KnownTokens;
use super::oidc::{Issuer, Vouched};
use crate::tokens::{Kept, PrincipalName, Refused, Scope, Scopes, TokenId, Tokens};

/// The user of the token that is made at start.
const OWNER: &str = "local";

/// What proves who a user is. Sessions belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Credential {
    /// A token of the state folder.
    Token(TokenId),
    /// The token that was made at start.
    Start,
    /// A token of the issuer; which one does not matter, as it changes every hour.
    Issuer,
}

/// Who a request is from, and what it may do.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) principal: PrincipalName,
    pub(super) scopes: Scopes,
    pub(super) credential: Credential,
    /// When what proves it expires, if nobody looks after that: then its answers end too.
    pub(super) until: Option<Instant>,
}

/// All credentials that hold.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) tokens: KnownTokens,
    /// Users of the issuer who are refused.
    refused: Refused,
    start: Option<Start>,
    pub(super) issuer: Option<Issuer>,
}

/// The token of this process.
#[derive(Debug)]
struct Start {
    id: TokenId,
    scopes: Scopes,
    /// Whether it was shown, if it holds once; then there are no other tokens.
    shown: Option<AtomicBool>,
}

const MISSING: Refusal = Refusal {
    status: StatusCode::UNAUTHORIZED,
    reason: "credential_missing",
    text: "a credential is needed: Authorization: Bearer TOKEN",
};
const INVALID: Refusal = Refusal {
    status: StatusCode::UNAUTHORIZED,
    reason: "credential_invalid",
    text: "the token is unknown, expired or revoked",
};
const UNREAD: Refusal = Refusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    reason: "tokens",
    text: "the bridge cannot read its tokens now: try again later",
};
const SHUT_OUT: Refusal = Refusal {
    status: StatusCode::FORBIDDEN,
    reason: "refused_user",
    text: "the operator of the bridge refuses this user",
};
const SCOPE: Refusal =
    Refusal { status: StatusCode::FORBIDDEN, reason: "scope", text: "the token is not for this" };

impl Refusal {
    /// Whether the client can do something about it with another token.
    pub(super) fn wants_credential(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// Whether another token of the same user may be for this.
    pub fn lacks_scope(&self) -> bool {
        *self == SCOPE
    }

    /// Returns the error of RFC 6750, section 3.1; None for a request that had no credential.
    pub(super) fn error_code(&self) -> Option<&'static str> {
        match *self {
            INVALID => Some("invalid_token"),
            SCOPE => Some("insufficient_scope"),
            _ => None,
        }
    }
}

impl Credentials {
    pub(super) fn new(tokens: Tokens, refused: Refused, issuer: Option<Issuer>) -> Self {
        Self { tokens: KnownTokens::new(tokens), refused, start: None, issuer }
    }

    /// Accepts a token that no file has, for as long as this process runs.
    pub(super) fn accept_until_end(&mut self, secret: &str) {
        self.start = Some(Start { id: TokenId::of(secret), scopes: Scopes::of_owner(), shown: None });
    }

    /// Accepts a token that no file has once, for the console, and no others.
    pub(super) fn accept_once(&mut self, secret: &str) {
        let shown = Some(AtomicBool::new(false));
        self.start = Some(Start { id: TokenId::of(secret), scopes: Scopes::of_console(), shown });
    }

    /// Whether a token holds once.
    pub(super) fn hold_once(&self) -> bool {
        self.start.as_ref().is_some_and(|start| start.shown.is_some())
    }

    /// Returns who sends a request.
    ///
    /// # Errors
    /// There is no credential, or it does not hold, or it is not for this.
    pub(super) async fn check(&self, headers: &HeaderMap, scope: Scope) -> Result<Identity, Refusal> {
        let sent = headers.get(AUTHORIZATION).ok_or(MISSING)?;
        let sent = sent.to_str().map_err(|_| INVALID)?;
        let (scheme, secret) = sent.split_once(' ').ok_or(INVALID)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(MISSING);
        }
        self.of_token(secret, scope).await
    }

    /// Returns whose token it is.
    ///
    /// # Errors
    /// It does not hold, or is not for this.
    pub(super) async fn of_token(&self, secret: &str, scope: Scope) -> Result<Identity, Refusal> {
        let identity = self.of_secret(secret.trim()).await?.ok_or(INVALID)?;
        if identity.scopes.has(scope) {
            return Ok(identity);
        }
        tracing::info!(principal = %identity.principal, scope = scope.name(), "refused a request: its token is not for this");
        Err(SCOPE)
    }

    /// Returns whose secret it is; None if it is nobody's.
    async fn of_secret(&self, secret: &str) -> Result<Option<Identity>, Refusal> {
        if let Some(Start { id, scopes, shown }) = &self.start {
            let is_it = *id == TokenId::of(secret);
            let is_used = is_it && shown.as_ref().is_some_and(|shown| shown.swap(true, Ordering::Relaxed));
            if is_it && !is_used {
                let Ok(principal) = OWNER.parse() else { return Ok(None) };
                let (scopes, credential) = (scopes.clone(), Credential::Start);
                return Ok(Some(Identity { principal, scopes, credential, until: None }));
            }
            if shown.is_some() {
                return Ok(None);
            }
        }
        let kept = match TokenId::of_sent(secret) {
            Some(id) => self.tokens.get(&id).map_err(|_| UNREAD)?,
            None => None,
        };
        if let Some(kept) = kept {
            let credential = Credential::Token(kept.id);
            let (principal, scopes) = (kept.principal, kept.scopes);
            return Ok(Some(Identity { principal, scopes, credential, until: None }));
        }
        let Some(issuer) = self.issuer.as_ref().filter(|_| secret.contains('.')) else { return Ok(None) };
        match issuer.user(secret).await {
            Ok(Vouched { principal, scopes, until }) => {
                if self.refused.has(&principal).map_err(|_| UNREAD)? {
                    tracing::info!(%principal, "refused a user of the issuer");
                    return Err(SHUT_OUT);
                }
                let credential = Credential::Issuer;
                Ok(Some(Identity { principal, scopes, credential, until: Some(until) }))
            }
            Err(why) => {
                tracing::info!(%why, "refused a token of an issuer");
                Ok(None)
            }
        }
    }

    /// Returns what an identity is by now; None if what proved it holds no longer.
    pub(super) fn now(&self, identity: &Identity) -> Option<Identity> {
        let holds = match &identity.credential {
            Credential::Token(id) => {
                // One that cannot be read holds as it was known when it was shown.
                let Ok(kept) = self.tokens.get(id) else { return Some(identity.clone()) };
                let Kept { principal, scopes, .. } = kept?;
                return Some(Identity { principal, scopes, ..identity.clone() });
            }
            Credential::Start => true,
            Credential::Issuer => {
                let is_refused = !self.holds(&identity.principal, &identity.credential);
                identity.until.is_some_and(|until| Instant::now() < until) && !is_refused
            }
        };
        holds.then(|| identity.clone())
    }

    /// Returns whether a credential of a user still holds. Those of an issuer hold until they expire, and are checked with each
    /// request, or until their user is refused; a token that cannot be read has not been revoked.
    pub(super) fn holds(&self, user: &PrincipalName, credential: &Credential) -> bool {
        match credential {
            Credential::Token(id) => !matches!(self.tokens.get(id), Ok(None)),
            Credential::Issuer => !matches!(self.refused.has(user), Ok(true)),
            Credential::Start => true,
        }
    }
}
