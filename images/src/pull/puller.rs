//! From the name of an image in a registry to its root in the store.

use std::sync::Arc;

use super::layers::Fetch;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::{Image, Layers, ensure_root};
use crate::manifest::{CONFIG_LIMIT, Document, Manifest, ManifestError, choose, parse_document};
use crate::name::RegistryName;
use crate::platform::Platform;
use crate::progress::{Event, Progress};
use crate::registry::credentials::CredentialHelper;
use crate::registry::endpoints::{Endpoint, Registries};
use crate::registry::environment::Environment;
use crate::registry::error::{PullError, Reason, Tried};
use crate::registry::http::Timeouts;
use crate::registry::remote::Remote;
use crate::store::{Root, Store};

/// Indexes within indexes.
const DEPTH_LIMIT: usize = 4;

/// Downloads images from registries into a store.
pub(crate) struct Puller {
    pub(super) environment: Environment,
    pub(super) helper: Arc<dyn CredentialHelper>,
    pub(super) plain_http: bool,
    pub(super) timeouts: Timeouts,
}

/// The outcome of an address that did not provide the image.
enum Failure {
    Reason(Reason),
    /// An error that every other address would meet too.
    Final(ImageError),
}

impl<R: Into<Reason>> From<R> for Failure {
    fn from(reason: R) -> Self {
        Self::Reason(reason.into())
    }
}

impl Puller {
    pub(crate) fn new(helper: Arc<dyn CredentialHelper>, plain_http: bool) -> Self {
        let environment = Environment::of_this_process();
        Self { environment, helper, plain_http, timeouts: Timeouts::default() }
    }

    /// Downloads an image as the registry has it now, unpacks it and stores its name.
    pub(crate) async fn pull(
        &self,
        store: &Store,
        name: &RegistryName,
        progress: &Arc<dyn Progress>,
    ) -> Result<Root, ImageError> {
        let full = name.to_string();
        // The files may change while a bridge runs for weeks.
        let endpoints = Registries::of(&self.environment).endpoints(name, self.plain_http);
        let endpoints = endpoints.ok_or_else(|| PullError::Blocked(full.clone()))?;
        let mut tried: Vec<Tried> = Vec::new();
        let mut answered: Option<&str> = None;
        for endpoint in &endpoints {
            // It answered already, in another scheme.
            if answered == Some(endpoint.host.as_str()) {
                continue;
            }
            progress.event(Event::Asking { endpoint: endpoint.url() });
            match self.pull_from(endpoint, store, name, progress).await {
                Ok(root) => return Ok(root),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Reason(why)) => {
                    if why.is_an_answer() {
                        answered = Some(&endpoint.host);
                        tried.retain(|tried| !tried.endpoint.ends_with(&format!("//{}", endpoint.host)));
                    }
                    tracing::debug!(image = full, endpoint = endpoint.url(), %why, "could not get the image from this endpoint");
                    tried.push(Tried { endpoint: endpoint.url(), why });
                }
            }
        }
        Err(PullError::Refused { typed: name.as_typed().to_owned(), name: full, tried }.into())
    }

    async fn pull_from(
        &self,
        endpoint: &Endpoint,
        store: &Store,
        name: &RegistryName,
        progress: &Arc<dyn Progress>,
    ) -> Result<Root, Failure> {
        let remote = Remote::connect(endpoint, name, &self.environment, self.helper.as_ref(), self.timeouts);
        let remote = remote.await?;
        let (manifest, digest) = find_manifest(&remote, store).await?;
        let config = match store.read_blob(&manifest.config.digest, CONFIG_LIMIT)? {
            Some(config) => config,
            None => {
                let config = remote.small_blob(&manifest.config, CONFIG_LIMIT).await?;
                store.put_blob(&manifest.config.digest, &config)?;
                config
            }
        };
        let image = Image::new(Some(digest.clone()), &manifest, &config).map_err(Reason::from)?;
        let root = match store.root(&image.id)? {
            Some(root) => root,
            None => match fetch_and_unpack(&remote, store, &image, &manifest, progress).await {
                // What an earlier pull left may be damaged.
                Err(Failure::Final(ImageError::Store(_)))
                    if store.remove_damaged(&manifest.layers).await? =>
                {
                    fetch_and_unpack(&remote, store, &image, &manifest, progress).await?
                }
                done => done?,
            },
        };
        store.set_name(&name.to_string(), &image.id, Some(digest))?;
        Ok(root)
    }
}

/// Returns the manifest for this machine and its digest; the store keeps it.
async fn find_manifest(remote: &Remote, store: &Store) -> Result<(Manifest, Digest), Reason> {
    let mut wanted: Option<Digest> = None;
    for _ in 0..DEPTH_LIMIT {
        let (content, digest) = match remote.document(wanted.as_ref()).await {
            // A connection that was open for long may be dead.
            Err(why) if !why.is_an_answer() => remote.document(wanted.as_ref()).await?,
            answer => answer?,
        };
        match parse_document(&content)? {
            Document::Index(entries) => wanted = Some(choose(&entries, &Platform::here())?.digest),
            Document::Image(manifest) => {
                store.put_blob(&digest, &content)?;
                return Ok((manifest, digest));
            }
        }
    }
    let why = "it leads to other indexes only".into();
    Err(ManifestError::Malformed { what: "index", why }.into())
}

/// Downloads the layers, and unpacks the first of them meanwhile.
async fn fetch_and_unpack(
    remote: &Remote,
    store: &Store,
    image: &Image,
    manifest: &Manifest,
    progress: &Arc<dyn Progress>,
) -> Result<Root, Failure> {
    let (fetch, arriving) = Fetch::of(store, &manifest.layers);
    let layers: Arc<dyn Layers> = arriving;
    let fetching = fetch.run(remote, store, progress.as_ref());
    let unpacking = ensure_root(store, image, layers, progress);
    tokio::pin!(fetching, unpacking);
    let unpacked = tokio::select! {
        // A bad layer makes the others worthless.
        unpacked = &mut unpacking => unpacked,
        fetched = &mut fetching => {
            // A layer that does not arrive ends the unpacking, which removes what it made.
            let unpacked = unpacking.await;
            fetched?;
            unpacked
        }
    };
    unpacked.map_err(Failure::Final)
}
