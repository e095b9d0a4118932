//! One repository at one address: its documents and blobs.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use oci_client::client::{BlobResponse, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};

use super::credentials::{self, CredentialHelper, Credentials};
use super::endpoints::{Endpoint, Scheme};
use super::environment::Environment;
use super::error::Reason;
use super::http::{self, Timeouts};
use crate::digest::Digest;
use crate::manifest::Descriptor;
use crate::name::RegistryName;
use crate::store::StoreError;

/// Pauses before a busy registry is asked for a document again.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// A repository at an address.
pub(crate) struct Remote {
    client: Client,
    http: reqwest::Client,
    /// The address without a path.
    base: String,
    reference: Reference,
    /// The digest that the manifest must have.
    digest: Option<Digest>,
    /// For documents.
    auth: RegistryAuth,
    logged_in: bool,
    timeouts: Timeouts,
}

/// The pieces of a blob, as they arrive.
pub(crate) type Bytes = BoxStream<'static, std::io::Result<Vec<u8>>>;

impl Remote {
    /// Logs in to a registry, with the credentials that are stored for it.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        name: &RegistryName,
        environment: &Environment,
        helper: &dyn CredentialHelper,
        timeouts: Timeouts,
    ) -> Result<Self, Reason> {
        let found = credentials::find(environment, helper, &endpoint.host, &endpoint.repository).await?;
        let logged_in = found.is_some();
        let (host, repository) = (endpoint.host.clone(), endpoint.repository.clone());
        let reference = match (&name.digest, &name.tag) {
            (Some(digest), _) => Reference::with_digest(host, repository, digest.to_string()),
            (None, tag) => Reference::with_tag(host, repository, tag.as_deref().unwrap_or("latest").into()),
        };
        let http = http::client(endpoint, environment, timeouts)?;
        let scheme = if endpoint.scheme == Scheme::Http { "http" } else { "https" };
        // Docker's own registry has another host than the names of its images.
        let base = format!("{scheme}://{}", reference.resolve_registry());
        let auth = match found {
            None => RegistryAuth::Anonymous,
            Some(Credentials::Password { user, password }) => RegistryAuth::Basic(user, password),
            Some(Credentials::Token(token)) => RegistryAuth::Bearer(token),
            Some(Credentials::Identity(token)) => {
                let exchange = http::exchange(&http, &base, &endpoint.repository, &token);
                RegistryAuth::Bearer(within(timeouts.document, exchange).await?)
            }
        };
        let client = client(endpoint, environment, timeouts)?;
        let login = || async {
            let token = client.auth(&reference, &auth, RegistryOperation::Pull).await;
            token.map_err(|error| Reason::of(&error, logged_in))
        };
        let auth = match (within(timeouts.document, persistently(login)).await?, auth) {
            (Some(token), _) => RegistryAuth::Bearer(token),
            (None, RegistryAuth::Bearer(_)) => RegistryAuth::Anonymous,
            (None, auth) => auth,
        };
        Ok(Self { client, http, base, reference, digest: name.digest.clone(), auth, logged_in, timeouts })
    }

    /// Returns the manifest or index that the name stands for, or the one with this digest.
    pub(crate) async fn document(&self, digest: Option<&Digest>) -> Result<(Vec<u8>, Digest), Reason> {
        let wanted = digest.or(self.digest.as_ref());
        let name = match wanted {
            Some(digest) => digest.to_string(),
            None => self.reference.tag().unwrap_or("latest").to_string(),
        };
        let url = format!("{}/v2/{}/manifests/{name}", self.base, self.reference.repository());
        let question = || http::document(&self.http, &url, &self.auth, self.logged_in);
        let content = within(self.timeouts.document, persistently(question)).await?;
        match wanted {
            Some(expected) => {
                verify(expected, &content)?;
                Ok((content, expected.clone()))
            }
            None => {
                let digest = Digest::of(&content);
                Ok((content, digest))
            }
        }
    }

    /// Returns a small blob, whole and verified.
    pub(crate) async fn small_blob(&self, blob: &Descriptor, limit: u64) -> Result<Vec<u8>, Reason> {
        if blob.size > limit {
            return Err(Reason::senseless(format!("its configuration has {} bytes", blob.size)));
        }
        let read = || async {
            let mut content = Vec::new();
            let (mut bytes, _) = self.blob(blob, 0).await?;
            while let Some(piece) = bytes.next().await {
                content.extend_from_slice(&piece.map_err(|error| Reason::unreachable(&error))?);
                if content.len() as u64 > blob.size {
                    let (digest, expected) = (blob.digest.clone(), blob.size);
                    return Err(
                        StoreError::WrongSize { digest, expected, actual: content.len() as u64 }.into()
                    );
                }
            }
            verify(&blob.digest, &content)?;
            Ok(content)
        };
        within(self.timeouts.document, persistently(read)).await
    }

    /// Returns a blob from this byte on, and whether the registry really starts there and not at the beginning.
    pub(crate) async fn blob(&self, blob: &Descriptor, start: u64) -> Result<(Bytes, bool), Reason> {
        let digest = blob.digest.to_string();
        let response =
            self.client.pull_blob_stream_partial(&self.reference, digest.as_str(), start, None).await;
        let (stream, partial) = match response.map_err(|error| Reason::of(&error, self.logged_in))? {
            BlobResponse::Full(stream) => (stream, false),
            BlobResponse::Partial(stream) => (stream, true),
        };
        Ok((stream.stream.map(|piece| piece.map(|bytes| bytes.to_vec())).boxed(), partial))
    }
}

/// Asks again a few times while the registry is busy, but not when there is no connection.
async fn persistently<T, F: Future<Output = Result<T, Reason>>>(
    question: impl Fn() -> F,
) -> Result<T, Reason> {
    for pause in PAUSES {
        match question().await {
            Err(why) if why.is_an_answer() && why.is_temporary() => tokio::time::sleep(pause).await,
            answer => return answer,
        }
    }
    question().await
}

/// Waits for an answer no longer than this.
async fn within<T>(limit: Duration, question: impl Future<Output = Result<T, Reason>>) -> Result<T, Reason> {
    tokio::time::timeout(limit, question).await.unwrap_or_else(|_| Err(Reason::slow(limit)))
}

fn verify(expected: &Digest, content: &[u8]) -> Result<(), StoreError> {
    if expected.verifies(content) {
        return Ok(());
    }
    Err(StoreError::WrongDigest { expected: expected.clone(), actual: Digest::of(content) })
}

fn client(endpoint: &Endpoint, environment: &Environment, timeouts: Timeouts) -> Result<Client, Reason> {
    let config = ClientConfig {
        protocol: match endpoint.scheme {
            Scheme::Http => ClientProtocol::Http,
            Scheme::Https | Scheme::HttpsUnverified => ClientProtocol::Https,
        },
        accept_invalid_certificates: endpoint.scheme != Scheme::Https,
        extra_root_certificates: http::certificates(&endpoint.host),
        connect_timeout: Some(timeouts.connect),
        read_timeout: Some(timeouts.read),
        https_proxy: environment.https_proxy(),
        http_proxy: environment.http_proxy(),
        no_proxy: Some(environment.no_proxy()),
        user_agent: http::AGENT,
        ..ClientConfig::default()
    };
    // The library also builds a default client, and panics where the system has no certificate authorities.
    reqwest::Client::builder().build().map_err(|error| Reason::no_certificates(&error))?;
    Client::try_from(config).map_err(|error| Reason::no_certificates(&error))
}
