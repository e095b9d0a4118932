//! The two pipes of a sandbox: frames go in, and what comes out is sorted into what a run waits for and what asks.

use std::sync::Arc;

use tokio::io::BufReader;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Semaphore, mpsc};

use super::answers::QuestionFromGuest;
use super::frames::{self, FrameError, FromGuest, ToGuest};

/// Bytes of questions that wait for an answer: as many as the longest one has, and some.
const WAITING_QUESTIONS: usize = 128 << 20;
/// What a question costs beside its bytes: a call under way needs memory in many places.
const QUESTION: usize = 64 << 10;

/// Makes room for the guest in the pipe into the sandbox, so that nobody has to be woken for the rest of it; it is as good
/// without, and on Linux only.
pub(super) fn widen(input: &ChildStdin) {
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(input, 512 << 10);
    #[cfg(not(target_os = "linux"))]
    let _ = input;
}

/// Writes the guest, then frames as they come, until there are no more of ours. A sandbox that does not read shows at its
/// other end.
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
    let room = Arc::new(Semaphore::new(WAITING_QUESTIONS));
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    loop {
        let frame = match frames::read(&mut reader).await {
            Ok(Some(FromGuest::Query(id, json))) => {
                // A guest that asks and does not take its answers is not read either, once this much waits. Below that it
                // is: it takes no answer as long as it cannot get rid of its next question.
                let cost = u32::try_from(json.len() + QUESTION).unwrap_or(u32::MAX);
                let Ok(share) = Arc::clone(&room).acquire_many_owned(cost).await else { return };
                let _ = questions.send(QuestionFromGuest::Asked { id, json, share });
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
