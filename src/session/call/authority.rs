//! What a call is made with, such as an access token: what it began ends with it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

/// What a call is made with. Those without one, such as calls over standard input, may always go on.
#[derive(Debug, Clone, Default)]
pub struct Authority(Option<Held>);

#[derive(Debug, Clone)]
struct Held {
    id: u64,
    ended: CancellationToken,
}

impl Authority {
    /// Returns one that holds until `ended`.
    pub fn until(ended: CancellationToken) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Some(Held { id: NEXT.fetch_add(1, Ordering::Relaxed), ended }))
    }

    /// Returns what distinguishes it from others; None for one that never ends.
    pub(in crate::session) fn id(&self) -> Option<u64> {
        self.0.as_ref().map(|held| held.id)
    }

    /// Waits until it holds no longer.
    pub(in crate::session) async fn ended(&self) {
        match &self.0 {
            Some(held) => held.ended.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns a token that is cancelled when it holds no longer.
    pub fn child_token(&self) -> CancellationToken {
        self.0.as_ref().map_or_else(CancellationToken::new, |held| held.ended.child_token())
    }
}
