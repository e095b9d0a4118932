//! Access tokens of an OpenID Connect issuer: the bridge is a resource server of OAuth 2.1.
//!
//! The issuer publishes its keys. They are fetched when first needed, and again when a token names a key that is not known, but
//! not more often than every [`PAUSE`], also when it fails: tokens with invented keys must not make the bridge ask all the time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::signature;
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey, Validation, decode, decode_header,
};
use reqwest::Url;
use ring::signature as verify;
use serde::Deserialize;

use super::error::HttpError;
use crate::tokens::{PrincipalName, Scopes};

/// How long the keys of the issuer are not asked for again.
const PAUSE: Duration = Duration::from_secs(10);
/// How long keys are used without asking again: then a key that the issuer took back holds no longer.
const FRESH: Duration = Duration::from_secs(600);
/// How long keys are used while the issuer cannot be asked.
const STALE: Duration = Duration::from_secs(3600);
/// How long the issuer may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer of the issuer.
const LONGEST_ANSWER: usize = 1 << 20;
/// Bytes of a token.
const LONGEST_TOKEN: usize = 16 << 10;
/// Seconds by which clocks may differ.
const LEEWAY: u64 = 60;
/// How long an answer may take, however long its token holds.
const LONGEST_HOLD: Duration = Duration::from_secs(24 * 3600);
/// How tokens may be signed. None is symmetric, and `none` is no algorithm.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// An issuer of access tokens.
#[derive(Debug)]
pub struct Issuer {
    /// As tokens name it.
    url: String,
    audience: String,
    client: reqwest::Client,
    keys: Mutex<Keys>,
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Keys {
    set: Arc<JwkSet>,
    fetched: Option<Instant>,
    /// When the issuer could not be asked, and why.
    failed: Option<(Instant, String)>,
}

/// A user whom the issuer names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vouched {
    pub(super) principal: PrincipalName,
    pub(super) scopes: Scopes,
    /// When its token holds no longer.
    pub(super) until: Instant,
}

/// Why a token is refused. The text is for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Invalid {
    #[error("it is no JWT of a known algorithm: {0}")]
    Form(jsonwebtoken::errors::Error),
    #[error("it is too long, or has extensions that are not known")]
    Unknown,
    #[error("the issuer has no key '{0}'")]
    Key(String),
    #[error("{0}")]
    Claims(jsonwebtoken::errors::Error),
    #[error("its subject {0:?} cannot be the name of a user")]
    Subject(String),
    #[error("the issuer cannot be asked for its keys: {0}")]
    Issuer(String),
}

#[derive(Debug, Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

#[derive(Debug, Deserialize)]
struct Claims {
    sub: String,
    /// In seconds since 1970; some issuers write fractions.
    exp: f64,
    /// What it is for. Most issuers write `scope`, some `scp`; either is words in a text, or a list.
    #[serde(default)]
    scope: serde_json::Value,
    #[serde(default)]
    scp: serde_json::Value,
}

impl Claims {
    fn scopes(&self) -> Scopes {
        let words = [&self.scope, &self.scp].into_iter().flat_map(|named| match named {
            serde_json::Value::Array(list) => list.iter().filter_map(|word| word.as_str()).collect(),
            named => named.as_str().unwrap_or_default().split_ascii_whitespace().collect::<Vec<_>>(),
        });
        Scopes::of_issuer(words)
    }
}

impl Issuer {
    /// Returns an issuer whose tokens hold for an audience. It is asked for nothing before the first token.
    ///
    /// # Errors
    /// The URL is not one of an issuer.
    pub fn new(url: &str, audience: &str) -> Result<Self, HttpError> {
        let invalid = || HttpError::Issuer(url.to_owned());
        let parsed: Url = url.parse().map_err(|_| invalid())?;
        if !is_safe(&parsed) {
            return Err(invalid());
        }
        // Another part of the program may have installed the same providers before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let _ = PROVIDER.install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .map_err(|_| invalid())?;
        Ok(Self {
            url: url.to_owned(),
            audience: audience.to_owned(),
            client,
            keys: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the audience, if it is the URL of a resource as RFC 8707 names them.
    pub(super) fn resource(&self) -> Option<&str> {
        let url = self.audience.parse::<Url>().ok()?;
        let is_resource = ["http", "https"].contains(&url.scheme()) && url.fragment().is_none();
        is_resource.then_some(&self.audience)
    }

    /// Returns the user of a token.
    ///
    /// # Errors
    /// The token does not hold, or the issuer cannot be asked.
    pub(super) async fn user(&self, token: &str) -> Result<Vouched, Invalid> {
        if token.len() > LONGEST_TOKEN {
            return Err(Invalid::Unknown);
        }
        let header = decode_header(token).map_err(Invalid::Form)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Invalid::Form(ErrorKind::InvalidAlgorithm.into()));
        }
        if header.crit.is_some() {
            return Err(Invalid::Unknown);
        }
        let key = self.key(header.kid.as_deref(), header.alg).await?;
        let key = DecodingKey::from_jwk(&key).map_err(Invalid::Form)?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.url]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let claims = decode::<Claims>(token, &key, &validation).map_err(Invalid::Claims)?.claims;
        let shown = || Invalid::Subject(claims.sub.chars().take(64).collect());
        let principal = PrincipalName::of_issuer(&claims.sub).ok_or_else(shown)?;
        let left = time_left(claims.exp, SystemTime::now());
        Ok(Vouched { principal, scopes: claims.scopes(), until: Instant::now() + left })
    }

    /// Returns the key of a token, and asks the issuer if it is not known.
    async fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Jwk, Invalid> {
        let unknown = || {
            let shown: String = id.unwrap_or_default().chars().take(64).collect();
            Invalid::Key(shown.escape_default().to_string())
        };
        let of_age = |age| self.known(age).and_then(|set| find(&set, id, algorithm));
        if let Some(key) = of_age(FRESH) {
            return Ok(key);
        }
        // Whose key is known does not wait for an issuer that may not answer.
        let _turn = match (self.fetching.try_lock(), of_age(STALE)) {
            (Ok(turn), _) => turn,
            (Err(_), Some(key)) => return Ok(key),
            (Err(_), None) => self.fetching.lock().await,
        };
        // Another token may have brought the keys meanwhile.
        if let Some(set) = self.known(PAUSE) {
            return find(&set, id, algorithm).ok_or_else(unknown);
        }
        let fetched = match self.last_failure() {
            Some(why) => Err(why),
            None => self.fetch().await.map(Arc::new),
        };
        let set = match fetched {
            Ok(set) => set,
            Err(why) => {
                let key = of_age(STALE);
                self.lock().failed.get_or_insert_with(|| (Instant::now(), why.clone()));
                return key.ok_or(Invalid::Issuer(why));
            }
        };
        let key = find(&set, id, algorithm);
        *self.lock() = Keys { set, fetched: Some(Instant::now()), failed: None };
        key.ok_or_else(unknown)
    }

    /// Returns the keys, if they are not older than this.
    fn known(&self, age: Duration) -> Option<Arc<JwkSet>> {
        let keys = self.lock();
        keys.fetched.filter(|fetched| fetched.elapsed() < age).map(|_| Arc::clone(&keys.set))
    }

    /// Returns why the issuer could not be asked a moment ago. After [`PAUSE`] it is forgotten.
    fn last_failure(&self) -> Option<String> {
        let mut keys = self.lock();
        keys.failed.take_if(|(at, _)| at.elapsed() >= PAUSE);
        keys.failed.as_ref().map(|(_, why)| why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch(&self) -> Result<JwkSet, String> {
        let place = format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/'));
        let place: Url = place.parse().map_err(|_| "its URL is invalid".to_owned())?;
        let configuration: Configuration = self.get(place).await?;
        // Another issuer's keys must not hold for this one.
        if configuration.issuer != self.url {
            return Err(format!("it calls itself '{}'", configuration.issuer.escape_debug()));
        }
        let keys: Url = configuration.jwks_uri.parse().map_err(|_| "its jwks_uri is invalid".to_owned())?;
        if !is_safe(&keys) {
            return Err("its jwks_uri is not safe".into());
        }
        tracing::debug!(issuer = self.url, "fetching the keys of the issuer");
        let set: LenientSet = self.get(keys).await?;
        // Keys of other kinds are for others.
        Ok(JwkSet { keys: set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect() })
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, url: Url) -> Result<T, String> {
        let failed = |error: reqwest::Error| error.without_url().to_string();
        let response = self.client.get(url).send().await.map_err(failed)?;
        let mut response = response.error_for_status().map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err("its answer is too long".into());
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|error| format!("its answer is not as expected: {error}"))
    }
}

#[derive(Debug, Deserialize)]
struct LenientSet {
    keys: Vec<serde_json::Value>,
}

/// Returns how long a token holds that expires at a time in seconds since 1970.
fn time_left(expires: f64, now: SystemTime) -> Duration {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let left = expires + LEEWAY as f64 - now;
    match left > 0.0 {
        true => Duration::try_from_secs_f64(left).map_or(LONGEST_HOLD, |left| left.min(LONGEST_HOLD)),
        false => Duration::ZERO,
    }
}

/// Whether nobody on the way can change what the URL leads to.
fn is_safe(url: &Url) -> bool {
    let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    url.scheme() == "https" || (url.scheme() == "http" && is_here)
}

/// Returns the key of this id; without an id the only one that fits.
fn find(set: &JwkSet, id: Option<&str>, algorithm: Algorithm) -> Option<Jwk> {
    let fits = |key: &&Jwk| {
        let is_for_signatures =
            key.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let family = DecodingKey::from_jwk(key).map(|key| key.family());
        let declared = key.common.key_algorithm.as_ref().map(ToString::to_string);
        let is_for_algorithm = declared.is_none_or(|name| name == format!("{algorithm:?}"));
        let names_algorithm = algorithm_family(algorithm);
        is_for_signatures && is_for_algorithm && family.is_ok_and(|family| family == names_algorithm)
    };
    let known: HashSet<Option<&String>> = set.keys.iter().map(|key| key.common.key_id.as_ref()).collect();
    let fitting: Vec<&Jwk> = set.keys.iter().filter(fits).collect();
    match id {
        Some(id) => fitting.into_iter().find(|key| key.common.key_id.as_deref() == Some(id)).cloned(),
        None if fitting.len() == 1 && known.len() == set.keys.len() => fitting.first().copied().cloned(),
        None => None,
    }
}

fn algorithm_family(algorithm: Algorithm) -> AlgorithmFamily {
    match algorithm {
        Algorithm::ES256 | Algorithm::ES384 => AlgorithmFamily::Ec,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => AlgorithmFamily::Hmac,
        _ => AlgorithmFamily::Rsa,
    }
}

/// Signatures are verified with the library that TLS uses too.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

fn no_signer(_: &Algorithm, _: &EncodingKey) -> jsonwebtoken::errors::Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> jsonwebtoken::errors::Result<Box<dyn JwtVerifier>> {
    let by_algorithm = match algorithm {
        Algorithm::RS256 => By::Rsa(&verify::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => By::Rsa(&verify::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => By::Rsa(&verify::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => By::Rsa(&verify::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => By::Rsa(&verify::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => By::Rsa(&verify::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => By::Other(&verify::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => By::Other(&verify::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => By::Other(&verify::ED25519),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    if key.family() != algorithm_family(*algorithm) {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, by: by_algorithm, key: key.clone() }))
}

enum By {
    Rsa(&'static verify::RsaParameters),
    Other(&'static dyn verify::VerificationAlgorithm),
}

struct RingVerifier {
    algorithm: Algorithm,
    by: By,
    key: DecodingKey,
}

impl signature::Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (&self.by, self.key.kind()) {
            (By::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                verify::RsaPublicKeyComponents { n, e }.verify(parameters, message, signed)
            }
            (By::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                verify::UnparsedPublicKey::new(*algorithm, key).verify(message, signed)
            }
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// An issuer that answers with an error, and counts how often it is asked.
    async fn failing() -> (Issuer, Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Issuer::new(&format!("http://{}", listener.local_addr().unwrap()), "x").unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .await;
            }
        });
        (issuer, asked)
    }

    #[tokio::test]
    async fn an_issuer_that_fails_is_not_asked_for_each_token() {
        let (issuer, asked) = failing().await;
        for key in ["a", "b", "c"] {
            let refused = issuer.key(Some(key), Algorithm::ES256).await;
            assert!(matches!(refused, Err(Invalid::Issuer(_))), "{refused:?}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // It is asked again later.
        let Some(before) = Instant::now().checked_sub(PAUSE) else { return };
        issuer.lock().failed.as_mut().unwrap().0 = before;
        assert!(issuer.key(Some("d"), Algorithm::ES256).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn known_keys_hold_for_a_while_without_the_issuer() {
        let (issuer, asked) = failing().await;
        let key = |id: &str| {
            let value = serde_json::json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": "AA", "y": "AA" });
            serde_json::from_value::<Jwk>(value).unwrap()
        };
        let (Some(before), Some(long_ago)) =
            (Instant::now().checked_sub(FRESH), Instant::now().checked_sub(STALE))
        else {
            return;
        };
        let set = Arc::new(JwkSet { keys: vec![key("a")] });
        *issuer.lock() = Keys { set, fetched: Some(before), failed: None };
        for _ in 0..3 {
            assert!(issuer.key(Some("a"), Algorithm::ES256).await.is_ok());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        issuer.lock().fetched = Some(long_ago);
        assert!(issuer.key(Some("a"), Algorithm::ES256).await.is_err());
    }

    #[test]
    fn a_token_holds_until_it_expires() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!(time_left(1030.5, now), Duration::from_millis(90_500));
        assert_eq!(time_left(900.0, now), Duration::ZERO);
        assert_eq!(time_left(f64::MAX, now), LONGEST_HOLD);
        assert_eq!(time_left(f64::NAN, now), Duration::ZERO);
    }
}
