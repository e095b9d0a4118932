//! The progress of a pull, for display.

use crate::digest::Digest;

/// A step towards an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A registry or a mirror of it is asked.
    Asking {
        /// Scheme and host.
        endpoint: String,
    },
    /// The same image is being downloaded or unpacked elsewhere, in this process or another.
    Waiting,
    /// The layers are known.
    Layers {
        /// Bytes to download, without the layers of the store.
        bytes: u64,
    },
    /// More of a layer arrived.
    Received {
        layer: Digest,
        /// Bytes so far.
        received: u64,
        /// Bytes of the whole layer.
        size: u64,
    },
    /// The connection broke and is opened again.
    Retrying {
        /// The error of the connection.
        why: String,
    },
    /// A layer is being unpacked.
    Unpacking {
        /// Its number, from 1.
        layer: usize,
        /// How many there are.
        of: usize,
    },
}

/// Receives events, often and from several threads; must not block.
pub trait Progress: Send + Sync {
    fn event(&self, event: Event);
}

/// Ignores all events.
impl Progress for () {
    fn event(&self, _: Event) {}
}
