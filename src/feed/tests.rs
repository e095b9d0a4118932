//! A console and bridges in other processes, here in one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::activity::{NewRun, RunEnd, RunGuard};
use crate::audit::RunFacts;
use crate::settings::{RawSettings, Settings};
use crate::upstream::{NoAnswers, Question};
use crate::workspace::{Bridge, Workspace};

/// A bridge in a state folder, and what lets consoles see it.
struct Running {
    workspace: Workspace,
    _offering: AbortOnDropHandle<()>,
}

fn start(state: &std::path::Path) -> Running {
    let environment = [("MCP_BRIDGE_STATE_DIR".into(), state.into()), ("HOME".into(), state.into())].into();
    let settings = Settings::resolve(&RawSettings::from_environment(&environment).unwrap()).unwrap();
    let workspace = Workspace::new(Arc::new(Bridge::new(settings, environment)));
    let (feed, state) = (Feed::of_workspace(&workspace), state.to_owned());
    let offering = AbortOnDropHandle::new(tokio::spawn(async move { feed.offer(&state).await }));
    Running { workspace, _offering: offering }
}

fn run(bridge: &Running, cancel: &CancellationToken) -> RunGuard {
    let facts = Arc::new(RunFacts { principal: "local".into(), ..RunFacts::default() });
    let guard = bridge.workspace.sessions.activity().begin(NewRun {
        code: "\nprint(1)",
        session: "main",
        servers: &["s".to_owned()],
        timeout: Duration::from_secs(1),
        client: Some("test 1".into()),
        is_background: false,
        facts: Arc::clone(&facts),
        cancel: cancel.clone(),
    });
    guard.reporter().begins(1, &facts);
    guard
}

/// Waits until something holds that changes announce.
async fn until(changes: &mut Changes, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        loop {
            changes.next().await;
            if holds().await {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
}

#[tokio::test]
async fn a_console_sees_bridges_and_stops_answers_and_outlives_them() {
    let state = tempfile::tempdir().unwrap();
    let console = Feed::of_bridges(state.path());
    assert!(console.runs().await.is_empty());
    let mut changes = console.changes();
    let (first, second) = (start(state.path()), start(state.path()));
    assert!(!state.path().join("bridges").exists(), "nothing is made before the first run");
    let stop = CancellationToken::new();
    let running = run(&first, &stop);
    running.reporter().prints(StreamName::Stdout, b"\xff<b>\x1b[1m");
    let of_second = run(&second, &CancellationToken::new());
    until(&mut changes, async || console.runs().await.len() == 2).await;

    let name = first.workspace.sessions.activity().run_name(1);
    let detail = console.run(&name).await.unwrap();
    assert_eq!((&*detail.code, &*detail.row.first_line), ("\nprint(1)", "print(1)"));
    assert_eq!(detail.row.state, RunState::Running);
    let output = console.output(&name, StreamName::Stdout, 0).await.unwrap();
    assert_eq!(output.pieces, [Piece::Text("\u{fffd}<b>\u{1b}[1m".into())]);
    assert!(console.stop(&name).await && stop.is_cancelled());
    for unknown in ["", "x", "ffffffff-1", "../x-1", "-"] {
        assert!(console.run(unknown).await.is_none() && !console.stop(unknown).await, "{unknown}");
    }

    let _attendance = console.attend();
    let activity = second.workspace.sessions.activity().clone();
    while !activity.is_attended() {
        tokio::task::yield_now().await;
    }
    let answers = of_second.reporter().answers(Arc::new(NoAnswers::default()));
    let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
    let asked = tokio::spawn(async move {
        let question =
            Question { server: "s".into(), method: "elicitation/create".into(), params: Some(params) };
        answers.answer(question).await
    });
    until(&mut changes, async || console.questions().await.len() == 1).await;
    let question = console.questions().await.remove(0);
    assert_eq!(console.answer(&question.id, GivenAnswer::Decline, "ada").await, Ok(()));
    assert_eq!(asked.await.unwrap().unwrap(), json!({ "action": "decline" }));
    assert_eq!(console.answer(&question.id, GivenAnswer::Decline, "ada").await, Err(AnswerError::Gone));

    of_second.ended(RunEnd { outcome: "ok", ..RunEnd::default() });
    until(&mut changes, async || console.runs().await.iter().any(|run| run.state.has_ended())).await;
    drop(second);
    until(&mut changes, async || console.runs().await.len() == 1).await;
    let left = std::fs::read_dir(state.path().join("bridges")).unwrap().count();
    assert_eq!(left, 1, "a bridge that ends leaves nothing");
    drop((running, first));
}

#[tokio::test]
async fn what_is_no_question_gets_no_answer() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let state = tempfile::tempdir().unwrap();
    let bridge = start(state.path());
    let _running = run(&bridge, &CancellationToken::new());
    let console = Feed::of_bridges(state.path());
    until(&mut console.changes(), async || console.runs().await.len() == 1).await;
    let name = bridge.workspace.sessions.activity().bridge().to_owned();
    let path = state.path().join("bridges").join(format!("{name}.sock"));
    let long = "x".repeat(2 << 20);
    for nonsense in ["\n", "{}\n", "null\n", "\"no\"\n", "{\"run\":{}}\n", &long] {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let _ = stream.write_all(nonsense.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{nonsense:.20}");
    }
    assert_eq!(console.runs().await.len(), 1);
}
