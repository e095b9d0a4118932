//! The end of a connection: in bounded time, with every session ended.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::client::Client;

#[tokio::test]
async fn the_end_of_the_input_ends_the_server() {
    for open in [false, true] {
        let mut client = Client::connect();
        if open {
            client.initialize().await;
        }
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_ends_soon_is_still_answered_after_the_end_of_the_input() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    client.to = None;
    client.sessions.release.notify_one();
    assert_eq!(client.receive().await["id"], 1);
    client.ended().await.unwrap();
    assert_eq!(client.sessions.cancelled.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cancelled_some_time_after_the_end_of_the_input() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    client.to = None;
    let started = Instant::now();
    client.ended().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_stop_cancels_what_runs_and_answers_it() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    let started = Instant::now();
    client.stop.cancel();
    let answer = client.receive().await;
    assert_eq!(answer["result"]["structuredContent"]["status"], "cancelled", "{answer}");
    client.ended().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(client.line().await, None);
}

#[tokio::test]
async fn a_stop_also_ends_calls_that_ignore_it() {
    let mut client = Client::open().await;
    client.start_running(1, "stubborn").await;
    let started = Instant::now();
    client.stop.cancel();
    client.ended().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_stop_before_the_session_is_open_ends_the_server() {
    let mut client = Client::connect();
    client.stop.cancel();
    client.ended().await.unwrap();
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_what_runs_at_once() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    let started = Instant::now();
    client.hang_up.cancel();
    client.ended().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(client.sessions.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_broken_output_ends_the_server() {
    let client = Client::open().await;
    let Client { to, from, serving, .. } = client;
    drop(from);
    let mut to = to.unwrap();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    to.write_all(format!("{ping}\n").as_bytes()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn the_answers_for_a_client_that_reads_nothing_are_bounded() {
    let mut client = Client::open().await;
    // Each answer is 1 MiB, the output takes 64 KiB, and 16 MiB may wait.
    let mut to = client.to.take().unwrap();
    let flood = tokio::spawn(async move {
        for id in 1.. {
            let params = json!({ "name": "run_python", "arguments": { "code": format!("echo {}", "x".repeat(1 << 20)) } });
            let line = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        }
    });
    // Everything here runs on this thread, so when nothing arrives although everybody had many turns, it has
    // come to a stop.
    let arrived = || client.sessions.requests.lock().unwrap().len();
    let (mut before, mut quiet_turns) = (0, 0);
    while quiet_turns < 1000 && before < 100 {
        tokio::task::yield_now().await;
        let now = arrived();
        quiet_turns = if now == before && now > 0 { quiet_turns + 1 } else { 0 };
        before = now;
    }
    flood.abort();
    assert!((8..40).contains(&arrived()), "{} calls were read before the first answer was", arrived());
}
