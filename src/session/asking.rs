//! The questions of one guest: answered side by side, given up when nobody waits any more.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::frames::ToGuest;
use super::lending::Lending;
use super::queries::Queries;

/// What the guest sends of its own accord.
#[derive(Debug)]
pub(super) enum Asked {
    /// A question as JSON, and its share of the bytes that may wait.
    Question { id: u32, json: Vec<u8>, share: OwnedSemaphorePermit },
    /// The answer to that one is not wanted any more.
    Withdrawn(u32),
}

/// Answers until the guest is gone; what is then under way is called off.
pub(super) async fn answer_questions(
    mut asked: mpsc::UnboundedReceiver<Asked>,
    queries: Arc<Queries>,
    lending: Arc<Lending>,
    answers: mpsc::Sender<ToGuest>,
) {
    let gone = CancellationToken::new();
    let _call_off_at_the_end = gone.clone().drop_guard();
    let mut under_way: HashMap<u32, CancellationToken> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            asked = asked.recv() => match asked {
                Some(Asked::Question { id, json, share }) => {
                    let cancel = gone.child_token();
                    // A number that is used twice is the guest's own mistake.
                    under_way.insert(id, cancel.clone());
                    let (queries, lending) = (Arc::clone(&queries), Arc::clone(&lending));
                    let answers = answers.clone();
                    tasks.spawn(async move {
                        let answer = queries.answer(&lending, json, &cancel).await;
                        if !cancel.is_cancelled() {
                            let _ = answers.send(ToGuest::Answer(id, answer)).await;
                        }
                        drop(share);
                        id
                    });
                }
                Some(Asked::Withdrawn(id)) => {
                    if let Some(cancel) = under_way.remove(&id) {
                        cancel.cancel();
                    }
                }
                None => break,
            },
            Some(done) = tasks.join_next() => {
                if let Ok(id) = done {
                    under_way.remove(&id);
                }
            }
        }
    }
    // Servers are told that their calls are called off; nobody waits for that here.
    gone.cancel();
    tasks.detach_all();
}
