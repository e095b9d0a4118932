//! Browsers that are signed in. They are forgotten when the process ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use codebridge_runtimes::random_hex;
use sha2::{Digest, Sha256};

use super::cookie::SECRET;
use crate::http::Admitted;

/// How long a browser stays signed in without a request.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// Browsers of one user: the one that was not used for longest is signed out for another one.
const MOST_OF_USER: usize = 16;

/// What is kept of a secret.
type Key = [u8; 32];

/// All browsers that are signed in.
#[derive(Debug, Default)]
pub(super) struct Visits(Mutex<HashMap<Key, Visit>>);

/// A browser that is signed in.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) admitted: Admitted,
    /// What its forms must send: another site does not know it.
    pub(super) form_token: String,
    used: Instant,
}

fn key(secret: &str) -> Key {
    Sha256::digest(secret).into()
}

impl Visits {
    /// Signs a browser in, and returns its secret.
    pub(super) fn begin(&self, admitted: Admitted) -> String {
        let secret = random_hex::<SECRET>();
        let mut visits = self.lock();
        visits.retain(|_, visit| visit.used.elapsed() < IDLE);
        let of_user =
            || visits.iter().filter(|(_, visit)| visit.admitted.principal() == admitted.principal());
        if of_user().count() >= MOST_OF_USER
            && let Some(oldest) = of_user().min_by_key(|(_, visit)| visit.used).map(|(key, _)| *key)
        {
            visits.remove(&oldest);
        }
        visits.insert(key(&secret), Visit { admitted, form_token: random_hex::<16>(), used: Instant::now() });
        secret
    }

    /// Returns the browser of a secret, if what it has shown still holds.
    pub(super) fn get(
        &self,
        secret: &str,
        still: impl FnOnce(&Admitted) -> Option<Admitted>,
    ) -> Option<Visit> {
        let key = key(secret);
        let mut visits = self.lock();
        let visit = visits.get_mut(&key).filter(|visit| visit.used.elapsed() < IDLE)?;
        match still(&visit.admitted) {
            Some(admitted) => {
                (visit.admitted, visit.used) = (admitted, Instant::now());
                Some(visit.clone())
            }
            None => {
                visits.remove(&key);
                None
            }
        }
    }

    /// Whether a browser is signed in. That a page is open is no use of it.
    pub(super) fn holds(&self, secret: &str, still: impl FnOnce(&Admitted) -> Option<Admitted>) -> bool {
        let visits = self.lock();
        let visit = visits.get(&key(secret)).filter(|visit| visit.used.elapsed() < IDLE);
        visit.is_some_and(|visit| still(&visit.admitted).is_some())
    }

    /// Signs a browser out.
    pub(super) fn end(&self, secret: &str) {
        self.lock().remove(&key(secret));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Visit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    /// Whether a form comes from a page of this browser.
    pub(super) fn has_sent(&self, form_token: &str) -> bool {
        // The digests differ in the same way wherever the texts do.
        key(&self.form_token) == key(form_token)
    }
}
