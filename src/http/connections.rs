//! Connections: how many there are, whose they are, and how long one may take to say who it is.
//!
//! A connection that has not yet sent a valid credential is worth little: if there are too many of them, the oldest one of the
//! address with the most is closed for each new one. A user may have a part of all connections; beyond it, and where there are
//! too many in all, those are closed that wait for their next request. So neither users nor strangers keep others out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use http::Extensions;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::Listener;
use super::open_files::raise_limit;
use super::speak::{HEAD, speak};
use crate::tokens::PrincipalName;

/// Connections in all, if the process may open so many files.
const MOST: usize = 16_384;
/// Connections that have not sent a valid credential.
const MOST_STRANGERS: usize = 1_024;
/// The part of all connections that one user may have.
const PART_OF_USER: usize = 4;
/// How long a connection may take until its first valid credential.
const INTRODUCTION: Duration = Duration::from_secs(20);
/// How often it is said that connections are closed.
const SAY: Duration = Duration::from_secs(60);
/// How long the answers that are under way may take at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    state: Mutex<State>,
    tasks: TaskTracker,
    /// Cancelled when connections end after their current request.
    ending: CancellationToken,
    /// [`INTRODUCTION`] and [`HEAD`], shorter in tests.
    introduction: Duration,
    head: Duration,
}

#[derive(Debug)]
struct State {
    /// Of connections and of ends of requests, in their order.
    last: u64,
    /// By their numbers: oldest first.
    open: BTreeMap<u64, Entry>,
    users: HashMap<PrincipalName, usize>,
    /// The addresses of those without a credential, None for a socket of this machine: who floods is found without a look at
    /// all others.
    strangers: BTreeMap<u64, Option<IpAddr>>,
    most: usize,
    /// Strangers that were closed since that was said last, and when that was.
    closed_strangers: usize,
    said: Option<Instant>,
}

/// An open connection.
#[derive(Debug)]
struct Entry {
    /// Whose credential it sent last; None before the first.
    user: Option<PrincipalName>,
    is_busy: bool,
    /// When its last request ended, as a number.
    used: u64,
    /// Closes it.
    end: CancellationToken,
}

impl State {
    fn new(most: usize) -> Self {
        Self {
            last: 0,
            open: BTreeMap::new(),
            users: HashMap::new(),
            strangers: BTreeMap::new(),
            most,
            closed_strangers: 0,
            said: None,
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes a connection in, in place of another one if there are too many; None if no other one can go.
    fn add(&mut self, peer: Option<IpAddr>, end: CancellationToken) -> Option<u64> {
        let peer = peer.map(place);
        let is_full = self.open.len() >= self.most;
        let is_crowded = self.strangers.len() >= MOST_STRANGERS.min(self.most / 2);
        if is_full || is_crowded {
            if let Some(stranger) = self.worst_stranger(peer) {
                self.close(stranger);
                self.closed_strangers += 1;
            } else {
                let idle = self.idle_of_largest_user()?;
                self.close(idle);
            }
        }
        let number = self.next();
        self.strangers.insert(number, peer);
        self.open.insert(number, Entry { user: None, is_busy: false, used: number, end });
        Some(number)
    }

    /// Returns how many connections without a credential were closed because there are too many, if that is to be said now.
    fn take_closed_strangers(&mut self) -> Option<usize> {
        let is_due = self.said.is_none_or(|said| said.elapsed() >= SAY);
        if self.closed_strangers == 0 || !is_due {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.closed_strangers))
    }

    /// Notes who has sent a valid credential; false if this user has too many connections with requests.
    fn introduce(&mut self, number: u64, user: &PrincipalName) -> bool {
        let Some(entry) = self.open.get(&number) else { return false };
        if entry.user.as_ref() == Some(user) {
            return true;
        }
        let most = (self.most / PART_OF_USER).max(1);
        if self.users.get(user).is_some_and(|count| *count >= most) {
            match self.idle_of(user) {
                Some(other) => self.close(other),
                None => return false,
            }
        }
        let Some(entry) = self.open.get_mut(&number) else { return false };
        match entry.user.replace(user.clone()) {
            Some(before) => self.forget_one_of(&before),
            None => drop(self.strangers.remove(&number)),
        }
        *self.users.entry(user.clone()).or_default() += 1;
        true
    }

    fn set_busy(&mut self, number: u64, is_busy: bool) {
        let used = self.next();
        if let Some(entry) = self.open.get_mut(&number) {
            (entry.is_busy, entry.used) = (is_busy, used);
        }
    }

    /// Returns the oldest connection without a credential, of the address that has the most of them. The new
    /// connection counts too: whoever has had its share makes room for it.
    fn worst_stranger(&self, new: Option<IpAddr>) -> Option<u64> {
        let counts = counts(self.strangers.values().chain([&new]));
        let worst = self.strangers.iter().min_by_key(|(_, peer)| Reverse(counts[peer]));
        worst.map(|(number, _)| *number)
    }

    /// Returns the connection of a user that has been waiting for its next request for longest.
    fn idle_of(&self, user: &PrincipalName) -> Option<u64> {
        let of_user = self.open.iter().filter(|(_, entry)| entry.user.as_ref() == Some(user));
        let idle = of_user.filter(|(_, entry)| !entry.is_busy).min_by_key(|(_, entry)| entry.used);
        idle.map(|(number, _)| *number)
    }

    /// Returns the same of the user who has the most that wait.
    fn idle_of_largest_user(&self) -> Option<u64> {
        let idle = self.open.values().filter(|entry| !entry.is_busy).filter_map(|entry| entry.user.as_ref());
        let user = counts(idle).into_iter().max_by_key(|(user, count)| (*count, Reverse(*user)))?.0;
        self.idle_of(user)
    }

    fn close(&mut self, number: u64) {
        if let Some(entry) = self.remove(number) {
            entry.end.cancel();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.open.remove(&number)?;
        match &entry.user {
            Some(user) => self.forget_one_of(user),
            None => drop(self.strangers.remove(&number)),
        }
        Some(entry)
    }

    fn forget_one_of(&mut self, user: &PrincipalName) {
        if let Some(count) = self.users.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(user);
            }
        }
    }
}

/// Returns what counts as one place for connections without a credential: a host of IPv6 has a whole /64 to itself
/// (<https://www.rfc-editor.org/rfc/rfc6177>).
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

/// Counts how often each comes.
fn counts<T: Hash + Eq>(all: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

/// One connection, as its requests see it.
#[derive(Debug, Clone)]
pub(super) struct Connection(Arc<Open>);

/// A connection that is open until this is dropped.
#[derive(Debug)]
struct Open {
    number: u64,
    /// None for a socket of this machine.
    peer: Option<SocketAddr>,
    all: Arc<Connections>,
    /// Whether a valid credential was sent. It is set again whenever the connection has shown that it is of use.
    introduced: watch::Sender<bool>,
}

impl Connection {
    /// Returns the other end, for the log.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// Notes that a valid credential of a user was sent; false if this user has too many connections.
    pub(super) fn introduce(&self, user: &PrincipalName) -> bool {
        let may_stay = self.0.all.lock().introduce(self.0.number, user);
        if may_stay {
            self.0.introduced.send_replace(true);
        }
        may_stay
    }

    /// Gives it more time to say who it is. It stays among those without a credential, which make room for others.
    pub(super) fn renew(&self) {
        self.0.introduced.send_modify(|_| {});
    }

    /// Notes that a request begins; it ends when the result is dropped.
    fn begin(&self) -> Busy {
        self.0.all.lock().set_busy(self.0.number, true);
        Busy(self.clone())
    }
}

/// A request under way.
struct Busy(Connection);

impl Drop for Busy {
    fn drop(&mut self) {
        let Open { number, all, .. } = &*self.0.0;
        all.lock().set_busy(*number, false);
    }
}

/// Forgets a connection when it is dropped.
struct Closing(Connection);

impl Drop for Closing {
    fn drop(&mut self) {
        let Open { number, all, .. } = &*self.0.0;
        all.lock().remove(*number);
    }
}

impl Connections {
    pub(super) fn new() -> Arc<Self> {
        Self::with_times(INTRODUCTION, HEAD)
    }

    pub(super) fn with_times(introduction: Duration, head: Duration) -> Arc<Self> {
        // The other half is for sandboxes, servers and files.
        let files = raise_limit(2 * MOST as u64).and_then(|most| usize::try_from(most).ok());
        let most = files.map_or(MOST, |files| (files / 2).min(MOST));
        Arc::new(Self {
            state: Mutex::new(State::new(most)),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
            introduction,
            head,
        })
    }

    /// Returns how many connections are open.
    pub(super) fn open(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until `stop`.
    pub(super) async fn accept(
        self: &Arc<Self>,
        listener: &Listener,
        tls: Option<TlsAcceptor>,
        router: Router,
        stop: CancellationToken,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = accept(listener) => accepted,
                () = stop.cancelled() => return,
            };
            match accepted {
                Ok(stream) => self.take(stream, tls.clone(), router.clone()),
                Err(error) => {
                    // Out of files or memory: others end meanwhile.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_millis(200)) => {}
                        () = stop.cancelled() => return,
                    }
                }
            }
        }
    }

    /// Serves a connection in a task of its own, unless there are too many.
    fn take(self: &Arc<Self>, stream: Stream, tls: Option<TlsAcceptor>, router: Router) {
        let peer = match &stream {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        };
        let end = CancellationToken::new();
        let mut state = self.lock();
        let added = state.add(peer.map(|peer| peer.ip()), end.clone());
        let closed = state.take_closed_strangers();
        drop(state);
        if let Some(closed) = closed {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(closed, peer, "too many connections send no credential: closed the oldest");
        }
        let Some(number) = added else {
            tracing::warn!("refused a connection: all that there may be have requests under way");
            return;
        };
        let (introduced, news) = watch::channel(false);
        let open = Open { number, peer, all: Arc::clone(self), introduced };
        let connection = Connection(Arc::new(open));
        let closing = Closing(connection.clone());
        let introduction = self.introduction;
        self.tasks.spawn(async move {
            let _closing = closing;
            tokio::select! {
                () = serve(stream, tls, router, connection) => {}
                () = end.cancelled() => tracing::debug!("closed a connection: there are too many"),
                () = says_nothing(news, introduction) => {
                    tracing::debug!("closed a connection that sent no valid credential");
                }
            }
        });
    }

    /// Ends all connections after the answers that are under way.
    pub(super) async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        if tokio::time::timeout(FLUSH, self.tasks.wait()).await.is_err() {
            tracing::debug!("some clients did not read their last answers");
        }
    }
}

/// Waits until a connection has not said for so long who it is.
async fn says_nothing(mut news: watch::Receiver<bool>, longest: Duration) {
    while let Ok(Ok(())) = tokio::time::timeout(longest, news.changed()).await {
        if *news.borrow_and_update() {
            std::future::pending::<()>().await;
        }
    }
}

/// A connection of either kind.
enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> std::io::Result<Stream> {
    match listener {
        Listener::Tcp(listener, _) => {
            let (stream, _) = listener.accept().await?;
            // Answers are small, and nothing follows that they could wait for.
            let _ = stream.set_nodelay(true);
            Ok(Stream::Tcp(stream))
        }
        Listener::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
    }
}

async fn serve(stream: Stream, tls: Option<TlsAcceptor>, router: Router, connection: Connection) {
    let all = Arc::clone(&connection.0.all);
    let (ending, head) = (all.ending.clone(), all.head);
    let requests = (connection.peer(), move |extensions: &mut Extensions| {
        extensions.insert(connection.clone());
        connection.begin()
    });
    match (stream, tls) {
        (Stream::Tcp(stream), None) => speak(stream, router, requests, head, ending).await,
        (Stream::Unix(stream), _) => speak(stream, router, requests, head, ending).await,
        (Stream::Tcp(stream), Some(tls)) => match tls.accept(stream).await {
            Ok(stream) => speak(stream, router, requests, head, ending).await,
            Err(error) => tracing::debug!(%error, "a client did not finish the handshake of TLS"),
        },
    }
}

#[cfg(test)]
mod tests;
