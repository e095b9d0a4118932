//! Who makes room for whom, and how long a connection may take.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

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

/// Serves with these times on a port of this machine.
async fn listen(introduction: Duration, head: Duration) -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let known = |connection: axum::Extension<Connection>| async move {
        assert!(connection.introduce(&"alice".parse().unwrap()));
        "hello"
    };
    let router = Router::new().route("/known", get(known));
    let connections = Connections::with_times(introduction, head);
    let accepting = async move {
        let listener = Listener::Tcp(listener, address);
        connections.accept(&listener, None, router, CancellationToken::new()).await;
    };
    (address, AbortOnDropHandle::new(tokio::spawn(accepting)))
}

const SHORT: Duration = Duration::from_millis(200);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_connection_that_does_not_say_who_it_is_is_closed() {
    let (address, _serving) = listen(SHORT, LONG).await;
    let begun = Instant::now();
    let (mut silent, mut known) =
        (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
    known.write_all(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 1 << 10];
    assert!(known.read(&mut answer).await.unwrap() > 0);
    assert_eq!(silent.read(&mut answer).await.unwrap_or(0), 0, "it is closed");
    assert!(begun.elapsed() >= SHORT);
    tokio::time::sleep(SHORT).await;
    known.write_all(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let count = known.read(&mut answer).await.unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 200"), "it stays");
}

#[tokio::test]
async fn a_head_that_never_ends_is_given_up() {
    let (address, _serving) = listen(LONG, SHORT).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /known HTTP/1.1\r\nHost: x\r\nX: ").await.unwrap();
    let begun = Instant::now();
    // A byte now and then does not help.
    let ended = async {
        loop {
            let read = tokio::time::timeout(SHORT / 10, stream.read(&mut [0; 1 << 10])).await;
            if matches!(read, Ok(Ok(0) | Err(_))) || stream.write_all(b"x").await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
    assert!(begun.elapsed() >= SHORT / 2);
}

#[tokio::test]
async fn a_connection_that_is_renewed_has_its_time_again() {
    let (introduced, news) = watch::channel(false);
    let mut waiting = tokio::spawn(says_nothing(news, SHORT));
    tokio::time::sleep(SHORT / 2).await;
    let renewed = Instant::now();
    introduced.send_modify(|_| {});
    (&mut waiting).await.unwrap();
    assert!(renewed.elapsed() >= SHORT);
    let news = introduced.subscribe();
    introduced.send_replace(true);
    assert!(tokio::time::timeout(3 * SHORT, says_nothing(news, SHORT)).await.is_err(), "it is known");
}
