//! What is going on, for whoever waits.

use crate::digest::Digest;

/// A step towards an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A registry, or a mirror of it, is asked.
    Asking {
        /// The address.
        endpoint: String,
    },
    /// Somebody else fetches or unpacks the same image, in this process or another.
    Waiting,
    /// The layers are known.
    Layers {
        /// How many there are.
        count: usize,
        /// Bytes that have to come; layers that are here already are not among them.
        bytes: u64,
    },
    /// More of a layer has come.
    Received {
        /// Which layer.
        layer: Digest,
        /// Bytes of it so far.
        received: u64,
        /// Bytes of it in all.
        size: u64,
    },
    /// The connection broke and is made anew.
    Retrying {
        /// Which layer.
        layer: Digest,
        /// What had happened.
        why: String,
    },
    /// A layer is being unpacked.
    Unpacking {
        /// Which one, from 1.
        layer: usize,
        /// Of how many.
        of: usize,
    },
}

/// Hears of progress. Called often and from several threads; must not block.
pub trait Progress: Send + Sync {
    /// Something happened.
    fn event(&self, event: Event);
}

/// Nobody listens.
impl Progress for () {
    fn event(&self, _: Event) {}
}
