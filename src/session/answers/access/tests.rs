//! What is decided for one run does not hold for another.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::activity::{self, Activity, RunGuard};
use crate::artifacts::Artifacts;
use crate::audit::Audit;
use crate::policy::Policy;
use crate::reaper::Reaper;
use crate::settings::{RawSettings, Settings};
use crate::upstream::discovery::User;
use crate::upstream::{Answering, ClientId, Offers, Question};

/// Says yes when it is let go, and counts the questions.
#[derive(Debug, Default)]
struct Thinking {
    asked: AtomicUsize,
    is_asked: Notify,
    go_on: Notify,
}

impl Answers for Thinking {
    fn client(&self) -> ClientId {
        ClientId::default()
    }

    fn offers(&self) -> Offers {
        Offers { elicitation: true, ..Offers::default() }
    }

    fn answer(&self, _: Question) -> Answering<'_> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.is_asked.notify_one();
            self.go_on.notified().await;
            Ok(json!({ "action": "accept", "content": { "answer": "yes, this call" } }))
        })
    }
}

fn access(dir: &std::path::Path) -> ServerAccess {
    std::fs::write(dir.join("policy.toml"), "[[rule]]\nkind = 'artifact'\neffect = 'ask'\n").unwrap();
    let environment = [("MCP_BRIDGE_STATE_DIR".into(), dir.into())].into();
    let settings = Settings::resolve(&RawSettings::from_environment(&environment).unwrap()).unwrap();
    let policy = Arc::new(Policy::of(&settings));
    let (reaper, user) = (Reaper::of(None), User::default());
    let upstream =
        Upstream::new(&settings, Arc::default(), reaper, policy, user, Default::default(), Audit::off());
    let transfers = Arc::new(Transfers::new(Artifacts::at(dir, 1 << 20)));
    ServerAccess::new(upstream, Arc::default(), transfers, false)
}

fn reported(activity: &Activity, facts: &Arc<RunFacts>) -> RunGuard {
    activity.begin(activity::NewRun {
        code: "",
        session: "main",
        servers: &[],
        timeout: Duration::from_secs(1),
        client: None,
        is_background: false,
        facts: Arc::clone(facts),
        cancel: CancellationToken::new(),
    })
}

#[tokio::test]
async fn a_decision_about_an_artifact_is_of_the_run_that_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (access, person, cancel) =
        (access(dir.path()), Arc::new(Thinking::default()), CancellationToken::new());
    let (activity, facts) = (Activity::new(Audit::off()), Arc::<RunFacts>::default());
    let guard = reported(&activity, &facts);
    let caller = Caller {
        answers: Arc::clone(&person) as Arc<dyn Answers>,
        ..Caller::without_answers(mpsc::channel(1).0, cancel.clone())
    };
    let begin = |id| {
        let (facts, reporter) = (Arc::clone(&facts), guard.reporter().clone());
        let (session, timeout) = (Some("main"), Duration::from_secs(1));
        access
            .begin(NewRun { id, session, code: "", facts, grant: Grant::Nothing, timeout, reporter }, &caller)
    };
    let asked = || person.asked.load(Ordering::Relaxed);
    let first = begin(1);
    person.go_on.notify_one();
    for _ in 0..2 {
        access.allow_artifact("a.txt", &cancel).await.unwrap();
    }
    assert_eq!(asked(), 1, "once for all parts of it");
    person.is_asked.notified().await;
    // Another run begins while the person thinks about an artifact of the first.
    let (allowed, second) = tokio::join!(access.allow_artifact("b.txt", &cancel), async {
        person.is_asked.notified().await;
        let second = begin(2);
        person.go_on.notify_one();
        second
    });
    allowed.unwrap();
    assert_eq!(asked(), 2);
    for (name, questions) in [("b.txt", 3), ("b.txt", 3), ("a.txt", 4)] {
        person.go_on.notify_one();
        access.allow_artifact(name, &cancel).await.unwrap();
        assert_eq!(asked(), questions, "the second run has been asked for neither: {name}");
    }
    drop((first, second));
}
