//! What the users of a bridge may take of it: runs at once, and seconds and bytes a day.
//!
//! Free places go to users in turn, so that one with many calls delays the others by one run at most.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use super::folder::folder_of;
use super::usage::{self, Used};
use crate::settings::Settings;

/// Calls of one user that wait for a place; one more is refused.
const MOST_WAITING: usize = 256;
/// Seconds of a day.
const DAY: u64 = 24 * 3600;

/// The places of a bridge, and what its users have used.
#[derive(Debug)]
pub struct Quotas {
    state: Mutex<State>,
    most_runs: usize,
    user_runs: usize,
    seconds: Option<Duration>,
    bytes: Option<u64>,
    /// The state folder, in which each user has a folder; None in tests.
    folder: Option<PathBuf>,
    /// Whether what was used could not be written.
    is_unwritten: AtomicBool,
    clock: fn() -> SystemTime,
}

/// How much is going on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub running: usize,
    pub waiting: usize,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    closed: bool,
    users: BTreeMap<Arc<str>, User>,
    /// Who waits; the first gets the next place.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct User {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Place>>,
    /// None until it was read what was used today.
    day: Option<u64>,
    /// What was used today.
    used: Used,
    /// The part of it that is not on disk.
    unsaved: Used,
    /// Time that is set aside for the runs under way.
    reserved: Duration,
}

impl User {
    fn begin_day(&mut self, today: u64) {
        if self.day.is_some_and(|day| day != today) {
            (self.day, self.used, self.unsaved) = (Some(today), Used::default(), Used::default());
        }
    }

    fn add(&mut self, used: Used) {
        self.used.add(used);
        self.unsaved.add(used);
    }

    /// Returns the calls that wait for a place, without those that were given up.
    fn waits(&self) -> usize {
        self.waiting.iter().filter(|waiting| !waiting.is_closed()).count()
    }

    fn is_gone(&self) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.unsaved.is_nothing()
    }
}

/// A moment of the quotas' calendar.
#[derive(Debug, Clone, Copy)]
struct Now {
    day: u64,
    since_midnight: Duration,
}

/// Why a call gets no place. The text is for the user.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum NoPlace {
    #[error("the bridge is shutting down")]
    Closed,
    #[error("too many calls of this user are waiting ({MOST_WAITING})")]
    TooMany,
    #[error(
        "the {} s that runs can take in a day are used up (MCP_BRIDGE_USER_SECONDS); a new day begins at 00:00 UTC",
        .0.as_secs()
    )]
    Seconds(Duration),
    #[error(
        "the {0} bytes that runs can print in a day are used up (MCP_BRIDGE_USER_BYTES); a new day begins at 00:00 UTC"
    )]
    Bytes(u64),
}

/// The place of a run. Dropping it gives it to the next user.
#[derive(Debug)]
pub(super) struct Place {
    /// None once it was given back.
    quotas: Option<Arc<Quotas>>,
    user: Arc<str>,
    /// When the time was set aside.
    day: u64,
    /// Time that was set aside, of which the run gives back what it did not take.
    reserved: Duration,
    /// None for a run that was given up: then it counts as long as it held its place.
    taken: Option<Duration>,
    began: Instant,
}

impl Place {
    /// Returns how long the run may take.
    pub(super) fn limit(&self, wanted: Duration) -> Duration {
        let has_limit = self.quotas.as_ref().is_some_and(|quotas| quotas.seconds.is_some());
        if has_limit { wanted.min(self.reserved) } else { wanted }
    }

    /// Counts what the run has used.
    pub(super) fn used(&mut self, time: Duration, bytes: u64) {
        self.taken = Some(time);
        let Some(quotas) = &self.quotas else { return };
        let today = quotas.now().day;
        if let Some(user) = quotas.lock().users.get_mut(&self.user) {
            user.begin_day(today);
            user.add(Used { time: Duration::ZERO, bytes });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(quotas) = self.quotas.take() else { return };
        let taken = self.taken.unwrap_or_else(|| self.began.elapsed().min(self.reserved));
        let now = quotas.now();
        // Of a run that began yesterday, the time since midnight is today's.
        let of_today = if self.day == now.day { taken } else { taken.min(now.since_midnight) };
        let mut state = quotas.lock();
        state.running -= 1;
        if let Some(user) = state.users.get_mut(&self.user) {
            user.begin_day(now.day);
            user.running -= 1;
            user.reserved = user.reserved.saturating_sub(self.reserved);
            if quotas.has_limit() {
                user.add(Used { time: of_today, bytes: 0 });
            }
        }
        quotas.give_out(&mut state);
    }
}

impl Quotas {
    /// Returns the quotas under the settings.
    pub fn of(settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            most_runs: settings.max_runs.value,
            user_runs: settings.user_runs.value,
            seconds: settings.user_seconds.value,
            bytes: settings.user_bytes.value,
            folder: Some(settings.state_dir.value.clone()),
            is_unwritten: AtomicBool::new(false),
            clock: SystemTime::now,
        })
    }

    fn now(&self) -> Now {
        let since_1970 = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        let day = since_1970.as_secs() / DAY;
        Now { day, since_midnight: since_1970.saturating_sub(Duration::from_secs(day * DAY)) }
    }

    /// Whether anything is counted for a day.
    fn has_limit(&self) -> bool {
        self.seconds.is_some() || self.bytes.is_some()
    }

    /// Whether a user has runs, or calls that wait.
    pub fn is_active(&self, user: &str) -> bool {
        self.lock().users.get(user).is_some_and(|user| user.running > 0 || user.waits() > 0)
    }

    /// Counts time that no run took; false if the day of the user is used up.
    pub fn charge(&self, user: &Arc<str>, time: Duration) -> bool {
        let Some(most) = self.seconds else { return true };
        self.load_day(user);
        let today = self.now().day;
        let mut state = self.lock();
        let one = state.users.entry(Arc::clone(user)).or_default();
        one.begin_day(today);
        one.add(Used { time, bytes: 0 });
        one.used.time < most
    }

    /// Reads what a user has used today, once.
    fn load_day(&self, user: &Arc<str>) {
        let today = self.now().day;
        let is_known = |one: &User| one.day.is_some();
        if self.lock().users.get(user).is_some_and(is_known) {
            return;
        }
        let folder = self.folder.as_ref().filter(|_| self.has_limit()).map(|folder| folder_of(folder, user));
        let read = folder.map_or(Ok(Used::default()), |folder| usage::read(&folder, today));
        let used = read.unwrap_or_else(|error| {
            tracing::warn!(principal = %user, %error, "could not read what a user has used today");
            Used::default()
        });
        let mut state = self.lock();
        let one = state.users.entry(Arc::clone(user)).or_default();
        if one.day.is_none() {
            (one.day, one.used) = (Some(today), used);
        }
    }

    /// Writes what users have used since the last call of this. After a crash, at most that is missing.
    pub fn save(&self) {
        let Some(folder) = &self.folder else { return };
        let today = self.now().day;
        let unsaved: Vec<(Arc<str>, Used)> = {
            let mut state = self.lock();
            let users = state.users.iter_mut().filter(|(_, user)| user.day == Some(today));
            let taken = users.map(|(name, user)| (Arc::clone(name), std::mem::take(&mut user.unsaved)));
            taken.filter(|(_, unsaved)| !unsaved.is_nothing()).collect()
        };
        for (name, more) in unsaved {
            let saved = usage::add(&folder_of(folder, &name), today, more);
            let mut state = self.lock();
            let Some(user) = state.users.get_mut(&name).filter(|user| user.day == Some(today)) else {
                continue;
            };
            match saved {
                Ok(all) => {
                    user.used = all;
                    user.used.add(user.unsaved);
                    self.is_unwritten.store(false, Ordering::Relaxed);
                }
                Err(error) => {
                    user.unsaved.add(more);
                    if !self.is_unwritten.swap(true, Ordering::Relaxed) {
                        tracing::warn!(principal = %name, %error, "could not write what a user has used today");
                    }
                }
            }
        }
    }

    /// Returns how many runs there are, and how many wait.
    pub fn load(&self) -> Load {
        let state = self.lock();
        let waiting = state.users.values().map(User::waits).sum();
        Load { running: state.running, waiting }
    }

    /// Refuses all calls from now on, those that wait too.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.turns.clear();
        for user in state.users.values_mut() {
            user.waiting.clear();
        }
    }

    /// Forgets users who do nothing: what they have used today is on disk.
    pub fn forget_idle_users(&self) {
        self.lock().users.retain(|_, user| !user.is_gone());
    }

    /// Waits for a place. `wanted` is the longest time of the run.
    pub(super) async fn place(self: &Arc<Self>, user: &Arc<str>, wanted: Duration) -> Result<Place, NoPlace> {
        self.load_day(user);
        let waiting = {
            let mut state = self.lock();
            let state = &mut *state;
            if state.closed {
                return Err(NoPlace::Closed);
            }
            let one = state.users.entry(Arc::clone(user)).or_default();
            // Those that were given up take no space from others.
            one.waiting.retain(|waiting| !waiting.is_closed());
            if one.waiting.len() >= MOST_WAITING {
                return Err(NoPlace::TooMany);
            }
            let (sender, receiver) = oneshot::channel();
            one.waiting.push_back(sender);
            if !state.turns.contains(user) {
                state.turns.push_back(Arc::clone(user));
            }
            self.give_out(state);
            receiver
        };
        let mut place = waiting.await.map_err(|_| NoPlace::Closed)?;
        (place.reserved, place.began, place.day) =
            (self.reserve(user, wanted)?, Instant::now(), self.now().day);
        Ok(place)
    }

    /// Sets aside what a run may take of the day.
    fn reserve(&self, user: &Arc<str>, wanted: Duration) -> Result<Duration, NoPlace> {
        let today = self.now().day;
        let mut state = self.lock();
        let one = state.users.entry(Arc::clone(user)).or_default();
        one.begin_day(today);
        if let Some(most) = self.bytes
            && one.used.bytes >= most
        {
            return Err(NoPlace::Bytes(most));
        }
        let Some(most) = self.seconds else { return Ok(Duration::ZERO) };
        let left = most.saturating_sub(one.used.time).saturating_sub(one.reserved);
        if left < Duration::from_secs(1) {
            return Err(NoPlace::Seconds(most));
        }
        let reserved = wanted.min(left);
        one.reserved += reserved;
        Ok(reserved)
    }

    /// Gives free places to those who wait, one to each in turn.
    fn give_out(self: &Arc<Self>, state: &mut State) {
        let mut passed = 0;
        while state.running < self.most_runs && passed < state.turns.len() {
            let Some(name) = state.turns.pop_front() else { return };
            let Some(user) = state.users.get_mut(&name) else { continue };
            // Those that gave up are gone.
            while user.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                user.waiting.pop_front();
            }
            if user.waiting.is_empty() {
                continue;
            }
            if user.running >= self.user_runs {
                state.turns.push_back(name);
                passed += 1;
                continue;
            }
            let Some(waiting) = user.waiting.pop_front() else { continue };
            user.running += 1;
            state.running += 1;
            if !user.waiting.is_empty() {
                state.turns.push_back(Arc::clone(&name));
            }
            passed = 0;
            let place = Place {
                quotas: Some(Arc::clone(self)),
                user: Arc::clone(&name),
                day: 0,
                reserved: Duration::ZERO,
                taken: None,
                began: Instant::now(),
            };
            if let Err(mut place) = waiting.send(place) {
                // Given up in this moment. Its end would lock the state again.
                place.quotas = None;
                state.running -= 1;
                if let Some(user) = state.users.get_mut(&name) {
                    user.running -= 1;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
