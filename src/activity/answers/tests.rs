use std::sync::Mutex;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::activity::{Activity, AnswerError, NewRun, RunGuard};
use crate::audit::{Audit, RunFacts};
use crate::upstream::NoAnswers;

/// A client that shows each question until a test answers it.
#[derive(Debug, Default)]
struct Client(Mutex<Vec<oneshot::Sender<Result<Value, Refusal>>>>);

impl Client {
    fn open_dialogs(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|dialog| !dialog.is_closed()).count()
    }

    fn answer_last(&self, answer: Result<Value, Refusal>) {
        self.0.lock().unwrap().pop().unwrap().send(answer).unwrap();
    }
}

impl Answers for Client {
    fn client(&self) -> ClientId {
        ClientId::default()
    }

    fn offers(&self) -> Offers {
        Offers { elicitation: true, ..Offers::default() }
    }

    fn answer(&self, _: Question) -> Answering<'_> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap().push(sender);
        Box::pin(async move { receiver.await.unwrap() })
    }
}

fn begin(activity: &Activity) -> RunGuard {
    activity.begin(NewRun {
        code: "pass",
        session: "main",
        servers: &[],
        timeout: Duration::from_secs(1),
        client: None,
        is_background: false,
        facts: Arc::new(RunFacts { principal: "local".into(), ..RunFacts::default() }),
        cancel: CancellationToken::new(),
    })
}

fn form() -> Question {
    let params = json!({ "message": "really?", "requestedSchema": { "type": "object", "properties": {} } });
    Question { server: "s".into(), method: "elicitation/create".into(), params: Some(params) }
}

/// Asks, and looks whether the question waits.
fn pending(answers: &dyn Answers) -> Answering<'_> {
    let mut asked = answers.answer(form());
    assert!((&mut asked).now_or_never().is_none());
    asked
}

fn accept() -> GivenAnswer {
    GivenAnswer::Accept([("yes".to_owned(), json!(true))].into_iter().collect())
}

#[tokio::test]
async fn who_answers_first_wins_and_the_other_question_is_withdrawn() {
    let activity = Activity::new(Audit::off());
    let run = begin(&activity);
    let client = Arc::<Client>::default();
    let answers = run.reporter().answers(Arc::clone(&client) as Arc<dyn Answers>);
    let asked = pending(&*answers);
    let waiting = activity.questions();
    assert_eq!((waiting.len(), &*waiting[0].message, waiting[0].client_is_asked), (1, "really?", true));
    assert_eq!(activity.runs()[0].questions, 1);
    activity.answer(&waiting[0].id, accept(), "ada").unwrap();
    assert_eq!(asked.await.unwrap(), json!({ "action": "accept", "content": { "yes": true } }));
    assert_eq!((client.open_dialogs(), activity.questions().len()), (0, 0));
    assert_eq!(activity.answer(&waiting[0].id, GivenAnswer::Decline, "ada"), Err(AnswerError::Gone));

    let asked = pending(&*answers);
    let waiting = activity.questions();
    client.answer_last(Ok(json!({ "action": "decline" })));
    assert_eq!(asked.await.unwrap(), json!({ "action": "decline" }));
    assert_eq!(activity.answer(&waiting[0].id, accept(), "ada"), Err(AnswerError::Gone));
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_answered_by_who_attends_and_else_at_once_by_no() {
    let activity = Activity::new(Audit::off());
    let run = begin(&activity);
    let answers = run.reporter().answers(Arc::new(NoAnswers::default()));
    assert!(!answers.offers().elicitation);
    assert!(answers.answer(form()).now_or_never().unwrap().is_err());
    let attendance = activity.attend();
    assert!(answers.offers().elicitation);
    let mut asked = pending(&*answers);
    let waiting = activity.questions();
    assert!(!waiting[0].client_is_asked);
    // A page that is loaded again attends again: the question stays.
    drop(attendance);
    assert!((&mut asked).now_or_never().is_none());
    activity.answer(&waiting[0].id, GivenAnswer::Decline, "ada").unwrap();
    assert_eq!(asked.await.unwrap(), json!({ "action": "decline" }));
    assert!(!answers.offers().elicitation);
    let for_a_program = Question { method: "sampling/createMessage".into(), ..form() };
    let _attendance = activity.attend();
    assert!(answers.answer(for_a_program).now_or_never().unwrap().is_err(), "a person does not answer that");
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_refused_after_a_while() {
    let activity = Activity::new(Audit::off());
    let run = begin(&activity);
    let _attendance = activity.attend();
    let client = Arc::new(NoAnswers::default());
    let limit = Duration::from_millis(50);
    let answers = SharedAnswers { limit, ..SharedAnswers::new(client, activity.clone(), run.run()) };
    let asked = pending(&answers);
    assert!(asked.await.is_err());
    assert_eq!(activity.questions(), []);
}

#[tokio::test]
async fn a_client_that_fails_leaves_the_question_to_who_attends() {
    let activity = Activity::new(Audit::off());
    let run = begin(&activity);
    let client = Arc::<Client>::default();
    let answers = run.reporter().answers(Arc::clone(&client) as Arc<dyn Answers>);
    let asked = pending(&*answers);
    client.answer_last(Err(Refusal::unanswered("gone")));
    assert!(asked.await.is_err(), "nobody attends");
    let _attendance = activity.attend();
    let mut asked = pending(&*answers);
    client.answer_last(Err(Refusal::unanswered("gone")));
    assert!((&mut asked).now_or_never().is_none());
    activity.answer(&activity.questions()[0].id, accept(), "ada").unwrap();
    assert!(asked.await.is_ok());
}

#[tokio::test]
async fn a_withdrawn_question_is_not_shown_any_more() {
    let activity = Activity::new(Audit::off());
    let run = begin(&activity);
    let _attendance = activity.attend();
    let answers = run.reporter().answers(Arc::new(NoAnswers::default()));
    let asked = pending(&*answers);
    let mut changes = activity.changes();
    changes.mark_unchanged();
    drop(asked);
    assert!(changes.has_changed().unwrap() && activity.questions().is_empty());
}
