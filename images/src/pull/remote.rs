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
use super::error::{Reason, chain};
use super::http::{self, Proof, Timeouts};
use crate::digest::Digest;
use crate::manifest::Descriptor;
use crate::name::RegistryName;
use crate::store::StoreError;

/// Before a busy registry is asked for a document again.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// A repository at an address.
pub(super) struct Remote {
    client: Client,
    http: reqwest::Client,
    /// The address without a path.
    base: String,
    /// Of the image at that address, by tag or digest.
    reference: Reference,
    proof: Proof,
    known: bool,
    timeouts: Timeouts,
}

/// Bytes as they come.
pub(super) type Bytes = BoxStream<'static, std::io::Result<Vec<u8>>>;

impl Remote {
    /// Finds out who we are to the registry and logs in.
    pub(super) async fn connect(
        endpoint: &Endpoint,
        name: &RegistryName,
        environment: &Environment,
        helper: &dyn CredentialHelper,
        timeouts: Timeouts,
    ) -> Result<Self, Reason> {
        let found = credentials::find(environment, helper, &endpoint.host, &endpoint.repository).await;
        let found = found.map_err(Reason::Credentials)?;
        let known = found.is_some();
        let (host, repository) = (endpoint.host.clone(), endpoint.repository.clone());
        let reference = match (name.digest(), name.tag()) {
            (Some(digest), _) => Reference::with_digest(host, repository, digest.to_string()),
            (None, tag) => Reference::with_tag(host, repository, tag.unwrap_or("latest").into()),
        };
        let http = http::client(endpoint, environment, timeouts)?;
        let scheme = if endpoint.scheme == Scheme::Http { "http" } else { "https" };
        // Docker's own registry has another address than its images' names.
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
            token.map_err(|error| Reason::of(&error, known))
        };
        let proof = match (within(timeouts.document, persistently(login)).await?, auth) {
            (Some(token), _) => Proof::Bearer(token),
            (None, RegistryAuth::Basic(user, password)) => Proof::Basic(user, password),
            (None, _) => Proof::Nothing,
        };
        Ok(Self { client, http, base, reference, proof, known, timeouts })
    }

    /// The manifest or index that the name stands for, or the one with this digest.
    pub(super) async fn document(&self, digest: Option<&Digest>) -> Result<(Vec<u8>, Digest), Reason> {
        let named = self.reference.digest().map(str::parse::<Digest>).transpose();
        let named = named.map_err(|error| Reason::Answer(error.to_string()))?;
        let wanted = digest.cloned().or(named);
        let name = match &wanted {
            Some(digest) => digest.to_string(),
            None => self.reference.tag().unwrap_or("latest").to_string(),
        };
        let url = format!("{}/v2/{}/manifests/{name}", self.base, self.reference.repository());
        let question = || http::document(&self.http, &url, &self.proof, self.known);
        let content = within(self.timeouts.document, persistently(question)).await?;
        match wanted {
            Some(expected) if !expected.verifies(&content) => {
                let actual = Digest::of(&content);
                Err(StoreError::WrongDigest { expected, actual }.into())
            }
            Some(wanted) => Ok((content, wanted)),
            None => {
                let digest = Digest::of(&content);
                Ok((content, digest))
            }
        }
    }

    /// A small blob, whole and verified.
    pub(super) async fn small_blob(&self, blob: &Descriptor, limit: u64) -> Result<Vec<u8>, Reason> {
        if blob.size > limit {
            return Err(Reason::Answer(format!("its configuration has {} bytes", blob.size)));
        }
        let read = || async {
            let mut content = Vec::new();
            let (mut bytes, _) = self.blob(blob, 0).await?;
            while let Some(piece) = bytes.next().await {
                content.extend_from_slice(&piece.map_err(|error| Reason::Unreachable(chain(&error)))?);
                if content.len() as u64 > blob.size {
                    let (digest, expected) = (blob.digest.clone(), blob.size);
                    return Err(
                        StoreError::WrongSize { digest, expected, actual: content.len() as u64 }.into()
                    );
                }
            }
            if blob.digest.verifies(&content) {
                return Ok(content);
            }
            let actual = Digest::of(&content);
            Err(StoreError::WrongDigest { expected: blob.digest.clone(), actual }.into())
        };
        within(self.timeouts.document, persistently(read)).await
    }

    /// A blob from this byte on, and whether it really comes from there and not from its beginning.
    pub(super) async fn blob(&self, blob: &Descriptor, start: u64) -> Result<(Bytes, bool), Reason> {
        let digest = blob.digest.to_string();
        let response =
            self.client.pull_blob_stream_partial(&self.reference, digest.as_str(), start, None).await;
        let (stream, partial) = match response.map_err(|error| Reason::of(&error, self.known))? {
            BlobResponse::Full(stream) => (stream, false),
            BlobResponse::Partial(stream) => (stream, true),
        };
        Ok((stream.stream.map(|piece| piece.map(|bytes| bytes.to_vec())).boxed(), partial))
    }
}

/// Asks again a few times while the registry is busy. Where there is none, nobody waits.
async fn persistently<T, F: Future<Output = Result<T, Reason>>>(
    question: impl Fn() -> F,
) -> Result<T, Reason> {
    for pause in PAUSES {
        match question().await {
            Err(why) if why.is_an_answer() && why.may_pass() => tokio::time::sleep(pause).await,
            answer => return answer,
        }
    }
    question().await
}

/// The answer, if it comes in time.
async fn within<T>(limit: Duration, question: impl Future<Output = Result<T, Reason>>) -> Result<T, Reason> {
    tokio::time::timeout(limit, question).await.unwrap_or_else(|_| Err(Reason::slow(limit)))
}

fn client(endpoint: &Endpoint, environment: &Environment, timeouts: Timeouts) -> Result<Client, Reason> {
    http::install_provider();
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
    // Whatever it is told, the library makes one of the system's authorities as well, and panics where there are none.
    reqwest::Client::builder().build().map_err(|error| Reason::Unreachable(chain(&error)))?;
    Client::try_from(config).map_err(|error| Reason::Unreachable(chain(&error)))
}
