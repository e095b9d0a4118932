//! The two pipes of a sandbox: frames go in, frames of the run and questions come out.

use std::sync::Arc;

use tokio::io::BufReader;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Semaphore, mpsc};

use super::answers::QuestionFromGuest;
use super::frames::{self, FrameError, FromGuest, ToGuest};

/// Bytes of questions that wait for an answer: as many as the longest one has, and some.
const WAITING_QUESTIONS: usize = 128 << 20;
/// The cost of a question beside its bytes: a call under way needs memory in many places.
const COST_OF_QUESTION: usize = 64 << 10;

/// Enlarges the pipe into the sandbox, so that the guest fits into it at once and no process has to be woken for the rest.
/// This is an optimisation of Linux only.
pub(super) fn widen(input: &ChildStdin) {
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(input, 512 << 10);
    #[cfg(not(target_os = "linux"))]
    let _ = input;
}

/// Writes the guest, then frames as they come, until the channel of frames is closed. A failure to write is noticed at the
/// other end of the sandbox.
pub(super) async fn write_frames(
    mut stdin: ChildStdin,
    guest: Vec<u8>,
    mut frames: mpsc::UnboundedReceiver<ToGuest>,
    mut answers: mpsc::Receiver<ToGuest>,
) {
    use tokio::io::AsyncWriteExt;
    if stdin.write_all(&guest).await.is_err() {
        return;
    }
    loop {
        let frame = tokio::select! {
            biased;
            frame = frames.recv() => frame,
            Some(answer) = answers.recv() => Some(answer),
        };
        let Some(frame) = frame else { return };
        if frame.write(&mut stdin).await.is_err() {
            return;
        }
    }
}

/// Reads frames until the stream ends or breaks; the channel of frames ends with it.
pub(super) async fn read_frames(
    stdout: ChildStdout,
    frames: mpsc::Sender<Result<FromGuest, FrameError>>,
    questions: mpsc::UnboundedSender<QuestionFromGuest>,
) {
    let capacity = Arc::new(Semaphore::new(WAITING_QUESTIONS));
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    loop {
        let frame = match frames::read(&mut reader).await {
            Ok(Some(FromGuest::Question(id, json))) => {
                // A guest that asks and does not read its answers is not read either, once this much waits. Below that it
                // is read: it reads no answer while it waits to write its next question.
                let cost = u32::try_from(json.len() + COST_OF_QUESTION).unwrap_or(u32::MAX);
                let Ok(share) = Arc::clone(&capacity).acquire_many_owned(cost).await else { return };
                let _ = questions.send(QuestionFromGuest::New { id, json, share });
                continue;
            }
            Ok(Some(FromGuest::Withdraw(id))) => {
                let _ = questions.send(QuestionFromGuest::Withdrawn(id));
                continue;
            }
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let last = frame.is_err();
        if frames.send(frame).await.is_err() || last {
            return;
        }
    }
}
