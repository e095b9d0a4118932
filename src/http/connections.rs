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
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::Listener;
use super::open_files::raise_limit;
use super::speak::speak;
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
    introduced: CancellationToken,
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
            self.0.introduced.cancel();
        }
        may_stay
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
        // The other half is for sandboxes, servers and files.
        let files = raise_limit(2 * MOST as u64).and_then(|most| usize::try_from(most).ok());
        let most = files.map_or(MOST, |files| (files / 2).min(MOST));
        Arc::new(Self {
            state: Mutex::new(State::new(most)),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
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
        let introduced = CancellationToken::new();
        let open = Open { number, peer, all: Arc::clone(self), introduced: introduced.clone() };
        let connection = Connection(Arc::new(open));
        let closing = Closing(connection.clone());
        let ending = self.ending.clone();
        self.tasks.spawn(async move {
            let _closing = closing;
            let serving = serve(stream, tls, router, connection, ending);
            tokio::select! {
                () = serving => {}
                () = end.cancelled() => tracing::debug!("closed a connection: there are too many"),
                () = async {
                    if tokio::time::timeout(INTRODUCTION, introduced.cancelled()).await.is_ok() {
                        std::future::pending::<()>().await;
                    }
                } => tracing::debug!("closed a connection that sent no valid credential"),
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

async fn serve(
    stream: Stream,
    tls: Option<TlsAcceptor>,
    router: Router,
    connection: Connection,
    ending: CancellationToken,
) {
    let requests = (connection.peer(), move |extensions: &mut Extensions| {
        extensions.insert(connection.clone());
        connection.begin()
    });
    match (stream, tls) {
        (Stream::Tcp(stream), None) => speak(stream, router, requests, ending).await,
        (Stream::Unix(stream), _) => speak(stream, router, requests, ending).await,
        (Stream::Tcp(stream), Some(tls)) => match tls.accept(stream).await {
            Ok(stream) => speak(stream, router, requests, ending).await,
            Err(error) => tracing::debug!(%error, "a client did not finish the handshake of TLS"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(state: &mut State, peer: &str) -> (u64, CancellationToken) {
        let end = CancellationToken::new();
        (state.add(Some(peer.parse().unwrap()), end.clone()).unwrap(), end)
    }

    #[test]
    fn addresses_of_one_host_count_as_one() {
        let mut state = State::new(8);
        let client = [(); 2].map(|()| add(&mut state, "::ffff:192.0.2.1").1);
        let flood: Vec<_> = (0..4).map(|n| add(&mut state, &format!("2001:db8::{n}")).1).collect();
        assert!(client.iter().all(|end| !end.is_cancelled()));
        assert_eq!(flood.iter().filter(|end| end.is_cancelled()).count(), 2);
        assert_eq!(place("::ffff:192.0.2.1".parse().unwrap()), "192.0.2.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_user_has_a_part_of_all_connections_and_keeps_those_with_requests() {
        let mut state = State::new(12);
        let (alice, bob) = ("alice".parse().unwrap(), "bob".parse().unwrap());
        let mut of_alice: Vec<_> = (0..3).map(|_| add(&mut state, "192.0.2.1")).collect();
        for (number, _) in &of_alice {
            assert!(state.introduce(*number, &alice) && state.introduce(*number, &alice));
        }
        state.set_busy(of_alice[0].0, true);
        let fourth = add(&mut state, "192.0.2.1");
        assert!(state.introduce(fourth.0, &alice));
        let closed: Vec<bool> = of_alice.iter().map(|(_, end)| end.is_cancelled()).collect();
        assert_eq!(closed, [false, true, false], "the one that waits for longest");
        of_alice.push(fourth);
        for (number, _) in &of_alice {
            state.set_busy(*number, true);
        }
        let fifth = add(&mut state, "192.0.2.1");
        assert!(!state.introduce(fifth.0, &alice), "all have requests");
        assert!(state.introduce(fifth.0, &bob), "others notice nothing");
        // A proxy sends requests of several users over one connection.
        assert!(state.introduce(of_alice[0].0, &bob));
        assert_eq!((state.users[&alice], state.users[&bob], state.strangers.len()), (2, 2, 0));
        for (number, _) in of_alice {
            state.remove(number);
        }
        assert!(state.remove(fifth.0).is_some() && state.users.is_empty() && state.open.is_empty());
    }

    #[test]
    fn an_address_with_many_strangers_closes_its_own() {
        let mut state = State::new(8);
        let early = add(&mut state, "192.0.2.1");
        let flood: Vec<_> = (0..50).map(|_| add(&mut state, "192.0.2.2")).collect();
        assert!(!early.1.is_cancelled() && state.strangers.len() == 4, "{state:?}");
        let left: Vec<_> = flood.iter().filter(|(_, end)| !end.is_cancelled()).collect();
        assert_eq!(left.len(), 3);
        assert_eq!(left[0].0, flood[47].0, "the newest stay");
    }

    #[test]
    fn strangers_do_not_close_what_users_need() {
        let mut state = State::new(8);
        let users: Vec<PrincipalName> = ["a", "b", "c", "d"].map(|name| name.parse().unwrap()).into();
        let open: Vec<_> = (0..8)
            .map(|index| {
                let one = add(&mut state, "192.0.2.1");
                assert!(state.introduce(one.0, &users[index % 4]));
                state.set_busy(one.0, true);
                one
            })
            .collect();
        assert_eq!(state.add(None, CancellationToken::new()), None, "all have requests");
        state.set_busy(open[5].0, false);
        let _ = add(&mut state, "192.0.2.2");
        assert!(open[5].1.is_cancelled());
        for _ in 0..20 {
            let _ = add(&mut state, "192.0.2.2");
        }
        assert_eq!(open.iter().filter(|(_, end)| end.is_cancelled()).count(), 1);
    }
}
