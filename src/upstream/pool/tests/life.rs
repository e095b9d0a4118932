//! Crashes, limits, idleness and ends.

use codebridge_runtimes::exec::{self, CommandLine};

use super::*;

#[tokio::test]
async fn calls_go_out_at_once_and_no_more_than_allowed() {
    let bench = Bench::with(&[]);
    bench.tools().await.unwrap();
    let sleep = json!({ "seconds": 1 });
    let began = Instant::now();
    for outcome in futures_join((0..5).map(|_| bench.call("sleep", sleep.clone()))).await {
        outcome.unwrap();
    }
    // One after another they take five seconds.
    assert!(began.elapsed() < Duration::from_millis(2_500), "{:?}", began.elapsed());
    bench.upstream.shutdown().await;

    let bench = Setup::args(&[]).limits(|limits| limits.calls_at_once = 2).start();
    bench.tools().await.unwrap();
    let began = Instant::now();
    for outcome in futures_join((0..4).map(|_| bench.call("sleep", json!({ "seconds": 0.2 })))).await {
        outcome.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_crash_is_told_to_the_calls_it_hits_and_the_next_one_works() {
    let bench = Bench::with(&["--starts", "starts"]);
    bench.tools().await.unwrap();
    let waiting = bench.call("never", json!({}));
    let crashing = async {
        tokio::task::yield_now().await;
        bench.call("crash", json!({ "status": 7, "words": "out of luck" })).await
    };
    let (waiting, crashing) = tokio::join!(waiting, crashing);
    for outcome in [waiting, crashing] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, UpstreamError::Ended { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("exit status: 7") && text.contains("out of luck"), "{text}");
    }
    assert_eq!(bench.say("listings", json!({})).await, json!(0));
    assert_eq!(bench.starts(), 2);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_closes_its_output_has_ended() {
    let bench = Bench::with(&[]);
    let error = bench.call("close_output", json!({})).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Ended { .. }), "{error}");
    assert_eq!(bench.structured("echo").await, json!({}));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_call_ends_at_its_limit_and_the_server_is_told() {
    let bench = Setup::args(&[]).limits(|limits| limits.call = Duration::from_millis(300)).start();
    let error = bench.call("never", json!({})).await.unwrap_err();
    assert!(matches!(error, UpstreamError::TimedOut { .. }), "{error}");
    assert_eq!(bench.say("cancelled", json!({ "least": 1 })).await, json!(["timed out"]));
    bench.upstream.shutdown().await;
    // The user's own word counts more.
    let bench = Setup::args(&[]).entry("tool_timeout_sec", json!(0.2)).start();
    assert!(matches!(bench.call("never", json!({})).await, Err(UpstreamError::TimedOut { .. })));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_or_abandoned_call_is_taken_back() {
    let bench = Bench::with(&[]);
    bench.tools().await.unwrap();
    let cancel = CancellationToken::new();
    let call = bench.call_by("never", Map::new(), None, &cancel);
    let (outcome, ()) = tokio::join!(call, async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert!(matches!(outcome, Err(UpstreamError::Cancelled { .. })), "{outcome:?}");
    assert_eq!(bench.say("cancelled", json!({ "least": 1 })).await, json!(["cancelled"]));
    assert!(tokio::time::timeout(Duration::from_millis(50), bench.call("never", json!({}))).await.is_err());
    let reasons = bench.say("cancelled", json!({ "least": 2 })).await;
    assert_eq!(reasons, json!(["cancelled", "the caller stopped waiting"]));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_nobody_uses_is_stopped_and_started_again() {
    let bench = Setup::args(&[]).limits(|limits| limits.idle = Some(Duration::from_millis(800))).start();
    let first = bench.pid().await;
    // In use for longer than it may be idle.
    bench.call("sleep", json!({ "seconds": 1.2 })).await.unwrap();
    assert_eq!(bench.pid().await, first);
    until("the idle server is gone", || !is_alive(first)).await;
    assert_eq!(bench.state(), ServerState::Stopped);
    let second = bench.pid().await;
    assert_ne!(first, second);
    bench.upstream.shutdown().await;
    assert!(!is_alive(second));
}

#[tokio::test]
async fn a_definition_that_changes_gets_another_process() {
    let mut bench = Bench::with(&[]);
    let first = bench.pid().await;
    bench.define(vec!["--tools".into(), "1".into()], Map::new());
    let second = bench.pid().await;
    assert_ne!(first, second);
    assert_eq!(bench.tools().await.unwrap().tools.len(), 2);
    until("the old one is gone", || !is_alive(first)).await;
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_ignores_everything_is_ended_with_its_children() {
    let bench = Bench::with(&["--ignore-eof", "--ignore-term", "--grandchild"]);
    let pids = bench.structured("pids").await;
    let pids: Vec<u32> =
        ["pid", "grandchild"].map(|key| pids[key].as_u64().unwrap().try_into().unwrap()).into();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let began = Instant::now();
    bench.upstream.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    until("they are gone", || !pids.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn the_reaper_knows_every_server_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, heard) = (dir.path().join("reaper"), dir.path().join("heard"));
    let (draft, mode) = (dir.path().join("draft"), std::os::unix::fs::PermissionsExt::from_mode(0o700));
    std::fs::write(&draft, format!("#!/bin/sh\necho $1 > {0}\ncat >> {0}\n", heard.display())).unwrap();
    std::fs::set_permissions(&draft, mode).unwrap();
    // What is open for writing here, children that other tests start now have too, and nobody could run it.
    let copy = CommandLine::new("/bin/cp").arg(&draft).arg(&program);
    let _ = exec::run(copy, Duration::from_secs(20)).await.and_then(exec::Finished::success).unwrap();
    let reaper = Reaper::of(Some(program));
    let bench = Setup { reaper: Some(reaper.clone()), ..Setup::args(&["--ignore-eof"]) }.start();
    let first = bench.pid().await;
    bench.call("crash", json!({})).await.unwrap_err();
    let second = bench.pid().await;
    bench.upstream.shutdown().await;
    reaper.dismiss().await;
    let heard = std::fs::read_to_string(heard).unwrap();
    let lines: Vec<&str> = heard.lines().collect();
    let expected = [
        "reaper",
        &format!("started {first}"),
        &format!("ended {first}"),
        &format!("started {second}"),
        &format!("ended {second}"),
    ];
    assert_eq!(lines, expected);
}
