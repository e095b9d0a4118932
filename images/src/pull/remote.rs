//! One repository at one address: its documents and blobs.

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use oci_client::client::{BlobResponse, Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};

use super::credentials::{self, CredentialHelper, Credentials};
use super::endpoints::{Endpoint, Scheme};
use super::environment::Environment;
use super::error::{Reason, chain};
use crate::digest::Digest;
use crate::manifest::{Descriptor, MANIFEST_LIMIT, MANIFEST_TYPES};
use crate::name::RegistryName;
use crate::store::StoreError;

/// To reach an address, its name looked up and TLS spoken.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Between two pieces of an answer.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// For a small document, from the question to its end.
const DOCUMENT_LIMIT: Duration = Duration::from_secs(60);

/// A repository at an address.
pub(super) struct Remote {
    client: Client,
    /// Of the image at that address, by tag or digest.
    reference: Reference,
    auth: RegistryAuth,
    known: bool,
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
    ) -> Result<Self, Reason> {
        let found = credentials::find(environment, helper, &endpoint.host, &endpoint.repository).await;
        let found = found.map_err(Reason::Credentials)?;
        let known = found.is_some();
        let auth = match found {
            None => RegistryAuth::Anonymous,
            Some(Credentials::Password { user, password }) => RegistryAuth::Basic(user, password),
            Some(Credentials::Token(token)) => RegistryAuth::Bearer(token),
            Some(Credentials::Identity(_)) => {
                let text = "an identity token is stored for it, which only its own login understands; \
                            store a user and a password or an access token";
                return Err(Reason::Credentials(text.into()));
            }
        };
        let (host, repository) = (endpoint.host.clone(), endpoint.repository.clone());
        let reference = match (name.digest(), name.tag()) {
            (Some(digest), _) => Reference::with_digest(host, repository, digest.to_string()),
            (None, tag) => Reference::with_tag(host, repository, tag.unwrap_or("latest").into()),
        };
        let client = client(endpoint, environment)?;
        let remote = Self { client, reference, auth, known };
        let login = remote.client.auth(&remote.reference, &remote.auth, RegistryOperation::Pull);
        remote.bounded(login).await?;
        Ok(remote)
    }

    /// The manifest or index that the name stands for, or the one with this digest.
    pub(super) async fn document(&self, digest: Option<&Digest>) -> Result<(Vec<u8>, Digest), Reason> {
        let reference = match digest {
            Some(digest) => self.reference.clone_with_digest(digest.to_string()),
            None => self.reference.clone(),
        };
        let wanted = reference.digest().map(str::parse::<Digest>).transpose();
        let wanted = wanted.map_err(|error| Reason::Answer(error.to_string()))?;
        let (content, _) =
            self.bounded(self.client.pull_manifest_raw(&reference, &self.auth, MANIFEST_TYPES)).await?;
        if content.len() as u64 > MANIFEST_LIMIT {
            return Err(Reason::Answer(format!("its manifest has {} bytes", content.len())));
        }
        let actual = Digest::of(&content);
        match wanted {
            Some(expected) if !expected.verifies(&content) => {
                Err(StoreError::WrongDigest { expected, actual }.into())
            }
            Some(wanted) => Ok((content.to_vec(), wanted)),
            None => Ok((content.to_vec(), actual)),
        }
    }

    /// A small blob, whole and verified.
    pub(super) async fn small_blob(&self, blob: &Descriptor, limit: u64) -> Result<Vec<u8>, Reason> {
        if blob.size > limit {
            return Err(Reason::Answer(format!("its configuration has {} bytes", blob.size)));
        }
        let read = async {
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
        tokio::time::timeout(DOCUMENT_LIMIT, read).await.unwrap_or_else(|_| Err(Reason::slow(DOCUMENT_LIMIT)))
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

    async fn bounded<T>(
        &self,
        question: impl Future<Output = Result<T, oci_client::errors::OciDistributionError>>,
    ) -> Result<T, Reason> {
        match tokio::time::timeout(DOCUMENT_LIMIT, question).await {
            Ok(answer) => answer.map_err(|error| Reason::of(&error, self.known)),
            Err(_) => Err(Reason::slow(DOCUMENT_LIMIT)),
        }
    }
}

fn client(endpoint: &Endpoint, environment: &Environment) -> Result<Client, Reason> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else's choice of the same process is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let config = ClientConfig {
        protocol: match endpoint.scheme {
            Scheme::Http => ClientProtocol::Http,
            Scheme::Https | Scheme::HttpsUnverified => ClientProtocol::Https,
        },
        // Without TLS nothing has to be verified, and no authorities have to be read from disk for it.
        accept_invalid_certificates: endpoint.scheme != Scheme::Https,
        extra_root_certificates: certificates(&endpoint.host),
        connect_timeout: Some(CONNECT_LIMIT),
        read_timeout: Some(READ_LIMIT),
        https_proxy: environment.https_proxy(),
        http_proxy: environment.http_proxy(),
        no_proxy: Some(environment.no_proxy()),
        user_agent: concat!("codebridge/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Client::try_from(config).map_err(|error| Reason::Unreachable(chain(&error)))
}

/// A registry's own certificates, where podman and docker look for them
/// (<https://man.archlinux.org/man/containers-certs.d.5>).
fn certificates(host: &str) -> Vec<Certificate> {
    let mut found = Vec::new();
    for folder in ["/etc/containers/certs.d", "/etc/docker/certs.d"] {
        let Ok(entries) = std::fs::read_dir(Path::new(folder).join(host)) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|ending| ending == "crt")
                && let Ok(data) = std::fs::read(&path)
            {
                found.push(Certificate { encoding: CertificateEncoding::Pem, data });
            }
        }
    }
    found
}
