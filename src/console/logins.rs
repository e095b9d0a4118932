//! Logins to servers that browsers have begun: each ends in the browser that began it, once and in time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::upstream::PendingLogin;

/// How long a person may take at the provider.
const LIMIT: Duration = Duration::from_secs(600);
/// Those of one user: the oldest makes room for another one.
const MOST_OF_USER: usize = 8;

/// All logins that have begun.
#[derive(Debug, Default)]
pub(super) struct Logins(Mutex<Vec<Begun>>);

/// A login that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) pending: PendingLogin,
    pub(super) server: Arc<str>,
    principal: Arc<str>,
    /// The browser: each that is signed in has another one.
    form_token: String,
    at: Instant,
}

impl Logins {
    /// Keeps a login until its browser comes back.
    pub(super) fn add(&self, pending: PendingLogin, server: Arc<str>, principal: Arc<str>, form_token: &str) {
        let mut begun = self.lock();
        begun.retain(|begun| begun.at.elapsed() < LIMIT);
        if begun.iter().filter(|begun| begun.principal == principal).count() >= MOST_OF_USER
            && let Some(oldest) = begun.iter().position(|begun| begun.principal == principal)
        {
            begun.remove(oldest);
        }
        begun.push(Begun {
            pending,
            server,
            principal,
            form_token: form_token.to_owned(),
            at: Instant::now(),
        });
    }

    /// Takes the login with this state, if this browser has begun it.
    pub(super) fn take(&self, state: &str, form_token: &str) -> Option<Begun> {
        let mut begun = self.lock();
        let is_it = |begun: &Begun| begun.pending.state() == state && begun.form_token == form_token;
        let at = begun.iter().position(|begun| is_it(begun) && begun.at.elapsed() < LIMIT)?;
        Some(begun.remove(at))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
