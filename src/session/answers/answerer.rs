//! Answers the questions of one guest, side by side, as long as their answers are needed.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::access::ServerAccess;
use super::steps;
use crate::saved::{Details, NewTool, SavedTools};
use crate::session::OutputStream;
use crate::session::background::BackgroundRuns;
use crate::session::capacity::Capacity;
use crate::session::frames::{AnswerJson, ToGuest};
use crate::session::output::Outputs;
use crate::session::output::whole_characters;
use crate::session::questions::{Answer, GuestQuestion, OutputPart, QuestionError, ToolSource, Transfer, ok};
use crate::upstream::catalog::Schemas;

/// Bytes of kept output in one answer. The guest asks for the rest: JSON may need six bytes for each.
const LONGEST_OUTPUT: u64 = 512 << 10;
/// Questions of one guest that are being answered; more of them wait. Most of the time is waiting for servers, which take
/// fewer calls at once.
const AT_ONCE: usize = 256;

/// What the guest sends apart from the frames of a run.
#[derive(Debug)]
pub(in crate::session) enum QuestionFromGuest {
    /// A question as JSON, with its permit for the bytes that may wait.
    New { id: u32, json: Vec<u8>, permit: OwnedSemaphorePermit },
    /// A question that was not read, because there was no permit for it.
    Skipped(u32),
    /// The answer to that question is no longer needed.
    Withdrawn(u32),
}

/// Answers questions until the guest is gone, then cancels those that are still being answered. Never waits for the guest.
pub(in crate::session) async fn answer_questions(
    mut questions: mpsc::Receiver<QuestionFromGuest>,
    answerer: Arc<Answerer>,
    access: Arc<ServerAccess>,
    answers: mpsc::Sender<ToGuest>,
) {
    let gone = CancellationToken::new();
    let _cancel_at_the_end = gone.clone().drop_guard();
    let mut under_way: HashMap<u32, CancellationToken> = HashMap::new();
    // Bounded by their permits.
    let mut waiting: VecDeque<(Pending, CancellationToken)> = VecDeque::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            question = questions.recv() => {
                let question = match question {
                    Some(QuestionFromGuest::New { id, json, permit }) => Pending { id, question: Some((json, permit)) },
                    Some(QuestionFromGuest::Skipped(id)) => Pending { id, question: None },
                    Some(QuestionFromGuest::Withdrawn(id)) => {
                        if let Some(cancel) = under_way.remove(&id) {
                            cancel.cancel();
                        }
                        continue;
                    }
                    None => break,
                };
                let cancel = gone.child_token();
                // A number that is used twice is the guest's own mistake.
                under_way.insert(question.id, cancel.clone());
                waiting.push_back((question, cancel));
            }
            Some(done) = tasks.join_next() => {
                if let Ok(id) = done {
                    under_way.remove(&id);
                }
            }
        }
        while tasks.len() < AT_ONCE
            && let Some((question, cancel)) = waiting.pop_front()
        {
            if !cancel.is_cancelled() {
                let (answerer, access) = (Arc::clone(&answerer), Arc::clone(&access));
                tasks.spawn(question.answer(answerer, access, cancel, answers.clone()));
            }
        }
    }
    // The tasks tell servers that their calls are cancelled, which is not waited for.
    gone.cancel();
    tasks.detach_all();
}

/// A question without an answer; None if it was not read.
struct Pending {
    id: u32,
    question: Option<(Vec<u8>, OwnedSemaphorePermit)>,
}

impl Pending {
    /// Answers it, unless it is cancelled; returns its number.
    async fn answer(
        self,
        answerer: Arc<Answerer>,
        access: Arc<ServerAccess>,
        cancel: CancellationToken,
        answers: mpsc::Sender<ToGuest>,
    ) -> u32 {
        let Self { id, question } = self;
        let answer = match question {
            Some((json, permit)) => answerer.answer(&access, json, Some(permit), &cancel).await,
            None => Err(QuestionError::plain(
                "the bridge is busy with the large questions of other sessions: try again later",
            )),
        };
        // Long answers are made one by one, once the guest has taken the last one.
        let slot = tokio::select! {
            slot = answers.reserve() => slot,
            () = cancel.cancelled() => return id,
        };
        let answer = answerer.finish(answer).await;
        if let Ok(slot) = slot
            && !cancel.is_cancelled()
        {
            slot.send(ToGuest::Answer(id, answer));
        }
        id
    }
}

/// Answers questions of all sessions.
#[derive(Debug)]
pub(in crate::session) struct Answerer {
    outputs: Arc<Mutex<Outputs>>,
    tools: SavedTools,
    capacity: Arc<Capacity>,
    background: Arc<BackgroundRuns>,
}

impl Answerer {
    pub(in crate::session) fn new(
        outputs: Arc<Mutex<Outputs>>,
        state_dir: PathBuf,
        capacity: Arc<Capacity>,
        background: Arc<BackgroundRuns>,
    ) -> Self {
        Self { outputs, tools: SavedTools::at(&state_dir), capacity, background }
    }

    pub(in crate::session) fn tools(&self) -> &SavedTools {
        &self.tools
    }

    pub(in crate::session) fn capacity(&self) -> &Arc<Capacity> {
        &self.capacity
    }

    async fn answer(
        self: &Arc<Self>,
        access: &ServerAccess,
        json: Vec<u8>,
        permit: Option<OwnedSemaphorePermit>,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let question = match GuestQuestion::is_short(&json) {
            true => GuestQuestion::parse(json, permit),
            false => {
                let parsed = self.capacity.work(move || GuestQuestion::parse(json, permit)).await;
                parsed.unwrap_or_else(|| Err(failed()))
            }
        };
        let answerer = Arc::clone(self);
        match question? {
            GuestQuestion::Output(part) => Answer::work(move || answerer.output(&part)),
            GuestQuestion::SaveTool(tool) => {
                access.must_be_attended()?;
                let schemas = access.schemas().await;
                Answer::work(move || answerer.save_tool(tool, &schemas))
            }
            GuestQuestion::ListSavedTools => Answer::work(move || ok(&answerer.tools.usable_names())),
            GuestQuestion::BeginArtifact(new) => {
                access.allow_artifact(&new.name, cancel).await?;
                access.transfers().begin(new, cancel).await.map(Answer::made)
            }
            GuestQuestion::CheckArtifact(transfer) => {
                access.transfers().check(transfer).await.map(Answer::made)
            }
            GuestQuestion::CommitArtifact(transfer) => {
                access.transfers().commit(transfer).await.map(Answer::made)
            }
            GuestQuestion::AbortArtifact(Transfer { transfer, .. }) => {
                access.transfers().abort(transfer).map(Answer::made)
            }
            GuestQuestion::Artifacts => {
                let transfers = Arc::clone(access.transfers());
                Answer::work(move || transfers.list())
            }
            GuestQuestion::ReadArtifact(part) => {
                access.allow_artifact(&part.name, cancel).await?;
                let transfers = Arc::clone(access.transfers());
                Answer::work(move || transfers.read(&part))
            }
            GuestQuestion::Module(module) => {
                let script = access.script()?;
                Answer::work(move || script.module(&module.name))
            }
            GuestQuestion::FileIn(piece) => {
                let script = access.script()?;
                Answer::work(move || script.piece(piece.index, piece.offset))
            }
            GuestQuestion::Input(wanted) => {
                let script = access.script()?;
                let read = tokio::select! {
                    read = script.input(wanted.bytes) => read?,
                    () = cancel.cancelled() => return Err(QuestionError::plain("cancelled")),
                };
                Answer::work(move || Ok(read))
            }
            GuestQuestion::Runs => Answer::work(move || answerer.runs()),
            GuestQuestion::Progress(progress) => {
                access.report(&progress);
                Answer::work(|| ok(&()))
            }
            GuestQuestion::Call(call) => access.call(call, cancel).await,
            GuestQuestion::ReadResource(wanted) => access.read_resource(wanted.into(), cancel).await,
            GuestQuestion::GetPrompt(wanted) => access.get_offer(wanted.into(), cancel).await,
            GuestQuestion::Complete(wanted) => access.get_offer(wanted.into(), cancel).await,
            GuestQuestion::Watch(wanted) => access.watch(wanted, cancel).await,
            GuestQuestion::NextChange(wanted) => access.next_change(wanted, cancel).await,
            GuestQuestion::EndWatch(wanted) => access.end_watch(&wanted),
            GuestQuestion::Offers(wanted) => access.offers(wanted, cancel).await,
            GuestQuestion::Servers(filter) => access.servers(filter).await,
            GuestQuestion::Server(server) => access.server(server),
            GuestQuestion::Describe(server) => access.describe(&server, cancel).await,
            GuestQuestion::Tool(tool) => access.tool(&tool, cancel).await,
            GuestQuestion::Tools(filter) => access.tools(&filter, cancel).await,
            GuestQuestion::Search(search) => access.search(&search).await,
            GuestQuestion::FindServers(search) => access.find_servers(&search, cancel).await,
            GuestQuestion::AddServer(new) => access.add_server(new, cancel).await,
            GuestQuestion::Install(question) => access.install(question, cancel).await,
            GuestQuestion::MissingModule(missing) => access.packages()?.missing(&missing),
            GuestQuestion::BeginStep(step) => steps::begin(access.workflow()?, step),
            GuestQuestion::FinishStep(step) => steps::finish(access.workflow()?, step),
            GuestQuestion::FailStep(step) => steps::fail(access.workflow()?, step),
        }
    }

    /// Does what is left to do for an answer.
    async fn finish(&self, answer: Result<Answer, QuestionError>) -> AnswerJson {
        let made = match answer {
            Ok(Answer::Result(json)) => return AnswerJson::Result(json),
            Ok(Answer::Work(work)) => self.capacity.work(work).await.unwrap_or_else(|| Err(failed())),
            Err(error) => Err(error),
        };
        AnswerJson::Made(made.unwrap_or_else(|error| error.to_json()))
    }

    fn output(&self, part: &OutputPart) -> Result<Vec<u8>, QuestionError> {
        let stream = OutputStream::named(part.stream.as_deref().unwrap_or("stdout"))
            .ok_or_else(|| QuestionError::plain("stream must be 'stdout', 'stderr' or 'traceback'"))?;
        let OutputPart { run_id, start, .. } = *part;
        let (kept, runs) = {
            let outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
            (outputs.get(run_id, stream), outputs.runs())
        };
        let kept = kept.ok_or_else(|| {
            QuestionError::plain(format!(
                "no output of run {run_id} is kept: only cut output is kept, at present that of the runs {runs:?}"
            ))
        })?;
        let wanted = part.length.unwrap_or(u64::MAX).min(kept.length().saturating_sub(start));
        let mut bytes = kept.read(start, wanted.min(LONGEST_OUTPUT));
        if wanted > LONGEST_OUTPUT {
            // The next piece begins with a whole character.
            bytes.truncate(whole_characters(&bytes));
        }
        let end = start + bytes.len() as u64;
        let last = wanted <= LONGEST_OUTPUT || bytes.is_empty();
        ok(&json!({ "text": String::from_utf8_lossy(&bytes), "end": end, "last": last }))
    }

    /// Returns the runs in the background.
    fn runs(&self) -> Result<Vec<u8>, QuestionError> {
        let runs = self.background.list();
        let fields = runs.into_iter().map(|run| {
            json!({
                "run": run.run,
                "session": run.session,
                "status": run.status,
                "seconds": run.elapsed.as_secs(),
                "progress": run.progress,
            })
        });
        ok(&fields.collect::<Vec<_>>())
    }

    /// Saves a function. The sandbox does not learn where on the host.
    fn save_tool(&self, tool: ToolSource, schemas: &Schemas) -> Result<Vec<u8>, QuestionError> {
        let ToolSource { name, source, details, example } = tool;
        let details = Details::checked(&name, details, &source);
        let schemas = schemas.digests(&details.tools);
        let new = NewTool { details, example, schemas, is_imported: false };
        let saved = self.tools.save(&name, &source, new);
        saved.map_err(|error| QuestionError::quoting(&error.for_sandbox()))?;
        ok(&())
    }
}

fn failed() -> QuestionError {
    QuestionError::plain("the bridge failed to answer")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::transfers::Transfers;
    use super::*;
    use crate::artifacts::Artifacts;
    use crate::audit::Audit;
    use crate::policy::Policy;
    use crate::reaper::Reaper;
    use crate::settings::{RawSettings, Settings};
    use crate::upstream::Upstream;
    use crate::upstream::discovery::User;

    fn parts(dir: &std::path::Path) -> (Arc<Answerer>, Arc<ServerAccess>) {
        let capacity = Arc::<Capacity>::default();
        let answerer =
            Arc::new(Answerer::new(Arc::default(), dir.into(), Arc::clone(&capacity), Arc::default()));
        let settings = Settings::resolve(&RawSettings::from_environment(&[].into()).unwrap()).unwrap();
        let policy = Arc::new(Policy::of(&settings));
        let (reaper, user) = (Reaper::of(None), User::default());
        let upstream =
            Upstream::new(&settings, Arc::default(), reaper, policy, user, Default::default(), Audit::off());
        let transfers = Arc::new(Transfers::new(Artifacts::at(dir, 1 << 20)));
        (answerer, Arc::new(ServerAccess::new(upstream, capacity, transfers, false)))
    }

    async fn answer(json: &str) -> Value {
        let dir = tempfile::tempdir().unwrap();
        let (answerer, access) = parts(dir.path());
        let answer = answerer.answer(&access, json.into(), None, &CancellationToken::new()).await;
        let AnswerJson::Made(answer) = answerer.finish(answer).await else { panic!("{json:.100}") };
        serde_json::from_slice(&answer).unwrap()
    }

    #[tokio::test]
    async fn a_call_is_refused_before_its_arguments_are_looked_at() {
        // They are no JSON that a parser of values would take.
        let arguments = r#"{"a":"\ud800","b":1e99999,"c":[[[]]]}"#;
        let json =
            format!(r#"{{"method":"call","params":{{"server":"nope","tool":"t","arguments":{arguments}}}}}"#);
        assert_eq!(answer(&json).await["kind"], "server");
    }

    #[tokio::test]
    async fn questions_without_end_wait_and_are_all_answered() {
        let dir = tempfile::tempdir().unwrap();
        let (answerer, access) = parts(dir.path());
        let (to_answer, questions) = mpsc::channel(4);
        let (answers, mut answered) = mpsc::channel(1);
        tokio::spawn(answer_questions(questions, answerer, access, answers));
        let space = Arc::new(tokio::sync::Semaphore::new(10_000));
        for id in 0..10_000 {
            let permit = Arc::clone(&space).try_acquire_owned().unwrap();
            let json = br#"{"method":"list_saved_tools","params":{}}"#.to_vec();
            // Nobody takes an answer yet.
            to_answer.send(QuestionFromGuest::New { id, json, permit }).await.unwrap();
            to_answer.send(QuestionFromGuest::Withdrawn(id + 1_000_000)).await.unwrap();
        }
        // One answer is done and waits for the guest.
        assert!(space.available_permits() <= AT_ONCE + 1, "the others are not being answered");
        let mut ids = std::collections::HashSet::new();
        while ids.len() < 10_000 {
            let Some(ToGuest::Answer(id, _)) = answered.recv().await else { panic!("{}", ids.len()) };
            ids.insert(id);
        }
    }

    #[tokio::test]
    async fn a_malformed_question_gets_a_short_error() {
        let deep = "[".repeat(100_000);
        let long = "x".repeat(100_000);
        for json in [
            String::new(),
            "null".into(),
            "[]".into(),
            r#"{"method":"output"}"#.into(),
            format!(r#"{{"method":"{long}","params":{{}}}}"#),
            format!(r#"{{"method":"output","params":{{"run_id":"{long}"}}}}"#),
            format!(r#"{{"method":"output","params":{deep}"#),
            format!(r#"{{"params":{deep}"#),
            format!(r#"{{"method":"save_tool","params":{{"name":"../{long}","source":""}}}}"#),
            format!(r#"{{"method":"call","params":{{"server":"s","tool":"t","arguments":"{long}"}}}}"#),
            format!(r#"{{"method":"tools","params":{{"server":"s","detail":["{long}"]}}}}"#),
        ] {
            let answer = answer(&json).await;
            let error = answer["error"].as_str().unwrap_or_default();
            assert!(!error.is_empty() && error.len() < 400, "{:.200} {:.1000}", json, error);
        }
    }

    #[tokio::test]
    async fn a_saved_tool_is_confirmed_without_a_path_of_the_host() {
        let answer = answer(r#"{"params":{"source":"def f(): pass","name":"f"},"method":"save_tool"}"#).await;
        assert_eq!(answer, json!({ "ok": null }));
    }
}
