//! Artifacts on their way out of a sandbox: their bytes come in frames, and go to the disk as they come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::artifacts::{Artifact, ArtifactError, Artifacts, Origin, Staged};
use crate::reason::reason;
use crate::session::questions::{ArtifactPart, NewArtifact, QuestionError, Transfer, ok};

/// Artifacts that one session saves at once.
const MOST: usize = 4;
/// Pieces that wait to be written.
const WAITING: usize = 4;
/// Artifacts of a run that its result names; more of them are counted.
const MOST_SAVED: usize = 100;
/// Artifacts in the answer to code that asks for all.
const MOST_LISTED: usize = 1000;
/// Bytes of content in one answer.
const LONGEST_PART: u64 = 1 << 20;

/// What the thread that writes an artifact gets.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    /// Answers once all before it is written.
    Check(oneshot::Sender<Result<(), String>>),
    /// So many bytes are all.
    Commit(u64, Origin, oneshot::Sender<Result<Artifact, String>>),
}

/// By the numbers of the guest: where the pieces go, once the artifact is begun.
type UnderWay = HashMap<u32, Arc<OnceLock<mpsc::Sender<Piece>>>>;

/// The artifacts that one session saves.
#[derive(Debug)]
pub(in crate::session) struct Transfers {
    artifacts: Artifacts,
    under_way: Mutex<UnderWay>,
    current: Mutex<Current>,
}

/// The run that is going on, or was last.
#[derive(Debug, Default)]
struct Current {
    origin: Origin,
    saved: Vec<Artifact>,
}

impl Transfers {
    pub(in crate::session) fn new(artifacts: Artifacts) -> Self {
        Self { artifacts, under_way: Mutex::default(), current: Mutex::default() }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which run saves from now on. What was saved since the last one belongs to it.
    pub(in crate::session) fn begin_run(&self, origin: Origin) {
        self.current().origin = origin;
    }

    /// Returns what was saved.
    pub(in crate::session) fn take_saved(&self) -> Vec<Artifact> {
        std::mem::take(&mut self.current().saved)
    }

    /// Gives up what is not complete: no more bytes will come.
    pub(in crate::session) fn end(&self) {
        self.under_way().clear();
    }

    /// Passes on bytes of an artifact, when there is space for them. Those of none are dropped.
    pub(in crate::session) async fn push(&self, transfer: u32, bytes: Vec<u8>) {
        if let Ok(piece) = self.sender(transfer) {
            let _ = piece.send(Piece::Bytes(bytes)).await;
        }
    }

    /// Begins to save an artifact, unless that is cancelled meanwhile.
    pub(in crate::session) async fn begin(
        &self,
        new: NewArtifact,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>, QuestionError> {
        let place = Arc::new(OnceLock::new());
        {
            let mut under_way = self.under_way();
            if under_way.len() >= MOST || under_way.contains_key(&new.transfer) {
                let text = format!("a session saves at most {MOST} artifacts at the same time");
                return Err(QuestionError::plain(text));
            }
            // Counted from now on, though it takes a moment until bytes may come.
            under_way.insert(new.transfer, Arc::clone(&place));
        }
        let (artifacts, NewArtifact { transfer, name, description }) = (self.artifacts.clone(), new);
        let staged = spawn_blocking(move || artifacts.begin(&name, description)).await;
        let staged = staged.map_err(|_| failed()).and_then(|staged| staged.map_err(refused));
        let mut under_way = self.under_way();
        // The guest may have given it up meanwhile, and begun another one under this number.
        let is_mine = under_way.get(&transfer).is_some_and(|current| Arc::ptr_eq(current, &place));
        match staged {
            Ok(staged) if is_mine && !cancel.is_cancelled() => {
                let (sender, pieces) = mpsc::channel(WAITING);
                let _ = place.set(sender);
                spawn_blocking(move || write(staged, pieces));
                ok(&())
            }
            staged => {
                if is_mine {
                    under_way.remove(&transfer);
                }
                Err(staged.err().unwrap_or_else(failed))
            }
        }
    }

    fn sender(&self, transfer: u32) -> Result<mpsc::Sender<Piece>, QuestionError> {
        let sender = self.under_way().get(&transfer).and_then(|place| place.get().cloned());
        sender.ok_or_else(|| QuestionError::plain("this artifact is not being saved"))
    }

    pub(in crate::session) async fn check(
        &self,
        Transfer { transfer, .. }: Transfer,
    ) -> Result<Vec<u8>, QuestionError> {
        let (sender, answer) = oneshot::channel();
        let _ = self.sender(transfer)?.send(Piece::Check(sender)).await;
        answer.await.map_err(|_| failed())?.map_err(QuestionError::plain)?;
        ok(&())
    }

    pub(super) async fn commit(
        &self,
        Transfer { transfer, bytes }: Transfer,
    ) -> Result<Vec<u8>, QuestionError> {
        let (sender, answer) = oneshot::channel();
        let pieces = self.sender(transfer)?;
        self.under_way().remove(&transfer);
        let origin = self.current().origin.clone();
        let _ = pieces.send(Piece::Commit(bytes, origin, sender)).await;
        let artifact = answer.await.map_err(|_| failed())?.map_err(QuestionError::plain)?;
        let mut value = described(&artifact);
        value["uri"] = artifact.version_uri().into();
        let answer = ok(&value);
        let mut current = self.current();
        if current.saved.len() < MOST_SAVED {
            current.saved.push(artifact);
        }
        answer
    }

    pub(in crate::session) fn abort(&self, transfer: u32) -> Result<Vec<u8>, QuestionError> {
        self.under_way().remove(&transfer);
        ok(&())
    }

    /// Returns the latest version of each artifact.
    pub(in crate::session) fn list(&self) -> Result<Vec<u8>, QuestionError> {
        let latest = self.artifacts.latest();
        ok(&latest.iter().take(MOST_LISTED).map(described).collect::<Vec<_>>())
    }

    /// Returns a part of an artifact: a line of JSON, and the bytes.
    pub(in crate::session) fn read(&self, part: &ArtifactPart) -> Result<Vec<u8>, QuestionError> {
        use std::os::unix::fs::FileExt;
        let artifact = self.artifacts.find(&part.name, part.version).map_err(refused)?;
        let file = self.artifacts.open(&artifact).map_err(refused)?;
        let left = artifact.bytes.saturating_sub(part.start);
        let length = part.length.min(left).min(LONGEST_PART);
        let head = json!({ "version": artifact.version, "bytes": artifact.bytes }).to_string() + "\n";
        let start = head.len();
        let mut answer = vec![0; start + usize::try_from(length).unwrap_or(0)];
        answer[..start].copy_from_slice(head.as_bytes());
        file.read_exact_at(&mut answer[start..], part.start).map_err(|error| {
            QuestionError::plain(format!("the artifact cannot be read: {}", reason(&error)))
        })?;
        Ok(answer)
    }
}

/// Writes pieces until the artifact is complete or given up. After an error the rest is dropped.
fn write(mut staged: Staged, mut pieces: mpsc::Receiver<Piece>) {
    let mut failure: Option<String> = None;
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Piece::Bytes(bytes) if failure.is_none() => {
                failure = staged.write(&bytes).err().map(|error| logged(&error));
            }
            Piece::Bytes(_) => {}
            Piece::Check(answer) => {
                let _ = answer.send(failure.clone().map_or(Ok(()), Err));
            }
            Piece::Commit(bytes, origin, answer) => {
                let committed = match failure {
                    Some(failure) => Err(failure),
                    None if bytes != staged.bytes() => Err("bytes of the artifact are missing".to_owned()),
                    None => staged.commit(origin).map_err(|error| logged(&error)),
                };
                let _ = answer.send(committed);
                return;
            }
        }
    }
}

/// Returns the error as the sandbox sees it; the log has the path.
fn logged(error: &ArtifactError) -> String {
    if let ArtifactError::Io { .. } = error {
        tracing::warn!(%error, "could not save an artifact");
    }
    error.for_sandbox()
}

fn refused(error: ArtifactError) -> QuestionError {
    QuestionError::plain(logged(&error))
}

fn failed() -> QuestionError {
    QuestionError::plain("the bridge failed to save the artifact")
}

fn described(artifact: &Artifact) -> Value {
    let mut value = json!(artifact);
    value["uri"] = artifact.uri().into();
    value
}

/// The transfers of a session, which end with it.
#[derive(Debug)]
pub(in crate::session) struct TransfersGuard(pub(in crate::session) Arc<Transfers>);

impl Drop for TransfersGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn saves_that_begin_at_once_are_within_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let transfers = Transfers::new(Artifacts::at(dir.path(), 1 << 20));
        let cancel = CancellationToken::new();
        let begin = |transfer| {
            let new = NewArtifact { transfer, name: "x".into(), description: None };
            transfers.begin(new, &cancel)
        };
        let begun = futures_util::future::join_all((0..20).map(begin)).await;
        assert_eq!(begun.iter().filter(|begun| begun.is_ok()).count(), MOST);
        // One that is given up makes space for another, and one that was refused took none.
        transfers.abort(0).unwrap();
        begin(30).await.unwrap();
        transfers.end();
        cancel.cancel();
        assert!(begin(31).await.is_err() && transfers.under_way().is_empty());
    }
}
