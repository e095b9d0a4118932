//! Downloads the layers of an image: several at once, each resumed where a connection broke.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use tokio::sync::oneshot;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::Layers;
use crate::manifest::Descriptor;
use crate::progress::{Event, Progress};
use crate::registry::error::Reason;
use crate::registry::remote::Remote;
use crate::store::{Receiving, Store, StoreError, pause};

/// As many layers at once as docker and podman download, give or take one.
const AT_ONCE: usize = 4;
/// Attempts in a row without a single byte.
const FRUITLESS_LIMIT: u32 = 4;
/// Attempts in all: a connection may break after each byte.
const ATTEMPT_LIMIT: u32 = 50;
/// The pause after the first attempt without a byte; doubled after each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Layers of which some are still being downloaded.
pub(super) struct Arriving {
    store: Store,
    layers: Vec<(Digest, Mutex<Option<oneshot::Receiver<()>>>)>,
}

impl Layers for Arriving {
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let (digest, arrival) = &self.layers[layer];
        let arrival = arrival.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The download returns the error itself.
        if arrival.is_some_and(|arrival| arrival.blocking_recv().is_err()) {
            return Err(ImageError::NotStored(digest.to_string()));
        }
        Ok(Box::new(self.store.open_layer(digest)?))
    }
}

/// Layers to download; who unpacks them meanwhile is notified of each.
pub(super) struct Fetch {
    wanted: Vec<(Descriptor, Vec<oneshot::Sender<()>>)>,
}

impl Fetch {
    /// Returns the download of what the store does not have of these layers.
    pub(super) fn of(store: &Store, layers: &[Descriptor]) -> (Self, Arc<Arriving>) {
        let mut wanted: Vec<(Descriptor, Vec<oneshot::Sender<()>>)> = Vec::new();
        let mut arriving = Vec::new();
        for layer in layers {
            let arrival = if store.has_blob(layer) {
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                // A layer that the image has twice is downloaded once.
                match wanted.iter_mut().find(|(known, _)| known.digest == layer.digest) {
                    Some((_, senders)) => senders.push(sender),
                    None => wanted.push((layer.clone(), vec![sender])),
                }
                Some(receiver)
            };
            arriving.push((layer.digest.clone(), Mutex::new(arrival)));
        }
        (Self { wanted }, Arc::new(Arriving { store: store.clone(), layers: arriving }))
    }

    /// Downloads all layers.
    pub(super) async fn run(
        self,
        remote: &Remote,
        store: &Store,
        progress: &dyn Progress,
    ) -> Result<(), Reason> {
        let bytes = self.wanted.iter().map(|(layer, _)| layer.size).sum();
        progress.event(Event::Layers { bytes });
        let mut left = self.wanted.into_iter().map(|(layer, arrivals)| async move {
            receive(remote, store, &layer, progress).await?;
            for arrival in arrivals {
                // The unpacking may have ended.
                let _ = arrival.send(());
            }
            Ok::<_, Reason>(())
        });
        let mut running: FuturesUnordered<_> = left.by_ref().take(AT_ONCE).collect();
        while running.try_next().await?.is_some() {
            running.extend(left.next());
        }
        Ok(())
    }
}

/// Downloads one layer, in as many attempts as the limits allow.
async fn receive(
    remote: &Remote,
    store: &Store,
    layer: &Descriptor,
    progress: &dyn Progress,
) -> Result<(), Reason> {
    let mut waiting = Some(Event::Waiting);
    let mut receiving = loop {
        if store.has_blob(layer) {
            return Ok(());
        }
        match store.try_receive(layer)? {
            // Another process may have finished it in between.
            Some(receiving) if store.has_blob(layer) => return Ok(receiving.discard()?),
            Some(receiving) => break receiving,
            None => {
                waiting.take().into_iter().for_each(|event| progress.event(event));
                pause().await;
            }
        }
    };
    let mut resumed = receiving.received() > 0;
    let (mut attempts, mut fruitless) = (0, 0);
    loop {
        if receiving.is_complete() {
            match receiving.finish() {
                Ok(()) => return Ok(()),
                // What an earlier attempt left may be wrong, and not what arrived now.
                Err(StoreError::WrongDigest { .. }) if resumed => {
                    resumed = false;
                    receiving = match store.try_receive(layer)? {
                        Some(receiving) => receiving,
                        None => {
                            return Err(Reason::interrupted(
                                "another process is downloading the same layer".into(),
                            ));
                        }
                    };
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let before = receiving.received();
        let Err(why) = receive_some(remote, &mut receiving, layer, progress).await else { continue };
        attempts += 1;
        fruitless = if receiving.received() > before { 0 } else { fruitless + 1 };
        if let Reason::Store(error) = &why
            && error.is_out_of_space()
        {
            // The space is needed more than a part of a layer.
            receiving.discard()?;
        }
        if !why.is_temporary() || fruitless >= FRUITLESS_LIMIT || attempts >= ATTEMPT_LIMIT {
            return Err(why);
        }
        progress.event(Event::Retrying { why: why.to_string() });
        if fruitless > 0 {
            tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(fruitless - 1)).await;
        }
    }
}

/// Downloads as much of a layer as one connection brings.
async fn receive_some(
    remote: &Remote,
    receiving: &mut Receiving,
    layer: &Descriptor,
    progress: &dyn Progress,
) -> Result<(), Reason> {
    let (mut bytes, partial) = remote.blob(layer, receiving.received()).await?;
    if !partial && receiving.received() > 0 {
        // Registries need not support ranges.
        receiving.start_over()?;
    }
    while let Some(piece) = bytes.next().await {
        match piece {
            Ok(piece) => receiving.write(&piece)?,
            // The library also checks the digest of a whole blob; ours comes next.
            Err(_) if receiving.is_complete() => return Ok(()),
            Err(error) => return Err(Reason::unreachable(&error)),
        }
        let (layer, received, size) = (layer.digest.clone(), receiving.received(), layer.size);
        progress.event(Event::Received { layer, received, size });
    }
    if receiving.is_complete() {
        return Ok(());
    }
    let message = format!("the connection ended after {} of {} bytes", receiving.received(), layer.size);
    Err(Reason::interrupted(message))
}
