//! Resources that the code of a session watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::upstream::ResourceWatch;
use crate::upstream::discovery::Server;

/// Resources that one session watches at once.
pub(super) const MOST: usize = 64;

/// The resources that are watched, by numbers of the host's choice.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u32,
    open: HashMap<u32, Arc<Watch>>,
}

/// A resource that is watched, of a server.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) server: Arc<Server>,
    pub(super) watch: tokio::sync::Mutex<ResourceWatch>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_full(&self) -> bool {
        self.lock().open.len() >= MOST
    }

    pub(super) fn add(&self, server: Arc<Server>, watch: ResourceWatch) -> u32 {
        let mut state = self.lock();
        state.last = state.last.wrapping_add(1);
        let number = state.last;
        state.open.insert(number, Arc::new(Watch { server, watch: watch.into() }));
        number
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<Watch>> {
        self.lock().open.get(&number).cloned()
    }

    /// Ends a watch, if it is there.
    pub(super) fn end(&self, number: u32) {
        // It is dropped after the lock.
        let ended = self.lock().open.remove(&number);
        drop(ended);
    }
}
