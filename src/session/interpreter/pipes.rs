//! The two pipes of a sandbox: frames go in, frames of the run and questions come out.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::ChildStdin;
use tokio::sync::{Semaphore, mpsc};

use super::files::Requests;
use crate::session::answers::QuestionFromGuest;
use crate::session::answers::{Transfers, TransfersGuard};
use crate::session::capacity::{Capacity, LARGE_QUESTION};
use crate::session::frames::{FrameError, FrameReader, FromGuest, ToGuest};

/// Bytes of the questions of one session that wait to be read; a large one counts for the whole bridge instead.
const WAITING_QUESTIONS: usize = 8 << 20;
/// The cost of a question beside its bytes.
const COST_OF_QUESTION: u32 = 512;

/// Enlarges the pipe into the sandbox, so that the guest fits into it at once and no process has to be woken for the rest.
/// This is an optimisation of Linux only.
pub(super) fn widen(input: &ChildStdin) {
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(input, 512 << 10);
    #[cfg(not(target_os = "linux"))]
    let _ = input;
}

/// Writes frames as they come, until the channel of frames is closed. A failure to write is noticed at the other end of the
/// sandbox.
pub(super) async fn write_frames(
    mut stdin: impl AsyncWrite + Unpin,
    mut frames: mpsc::UnboundedReceiver<ToGuest>,
    mut answers: mpsc::Receiver<ToGuest>,
) {
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

/// Where frames go that are not those of a run.
#[derive(Debug)]
pub(super) struct Receivers {
    pub(super) questions: mpsc::Sender<QuestionFromGuest>,
    pub(super) files: Arc<Requests>,
    pub(super) transfers: Arc<Transfers>,
}

/// Fails the requests for files once no answers will come.
struct RequestsGuard(Arc<Requests>);

impl Drop for RequestsGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Reads frames until the stream ends or breaks; the channel of frames ends with it.
pub(super) async fn read_frames(
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    frames: mpsc::Sender<Result<FromGuest, FrameError>>,
    receivers: Receivers,
    capacity: Arc<Capacity>,
) {
    let Receivers { questions, files, transfers } = receivers;
    let _ends = (RequestsGuard(Arc::clone(&files)), TransfersGuard(Arc::clone(&transfers)));
    let waiting = Arc::new(Semaphore::new(WAITING_QUESTIONS));
    loop {
        let frame = match reader.next().await {
            Ok(Some(FromGuest::Question(id, length))) => {
                match read_question(&mut reader, id, length, &waiting, &capacity).await {
                    Ok(question) => {
                        // Whoever takes them never waits for the guest.
                        let _ = questions.send(question).await;
                        continue;
                    }
                    Err(error) => Err(error),
                }
            }
            Ok(Some(FromGuest::Withdraw(id))) => {
                let _ = questions.send(QuestionFromGuest::Withdrawn(id)).await;
                continue;
            }
            Ok(Some(FromGuest::FilePart(id, answer))) => {
                files.answer(id, answer);
                continue;
            }
            Ok(Some(FromGuest::ArtifactBytes(transfer, bytes))) => {
                transfers.push(transfer, bytes).await;
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

/// Reads a question once there is space for it.
async fn read_question(
    reader: &mut FrameReader<impl AsyncRead + Unpin>,
    id: u32,
    length: u32,
    waiting: &Arc<Semaphore>,
    capacity: &Capacity,
) -> Result<QuestionFromGuest, FrameError> {
    if length as usize > LARGE_QUESTION {
        let Some(permit) = capacity.for_large_question(length).await else {
            reader.skip(length).await?;
            return Ok(QuestionFromGuest::Skipped(id));
        };
        let json = tokio::time::timeout(capacity.arrival, reader.payload(length)).await;
        return Ok(QuestionFromGuest::New { id, json: json.map_err(|_| FrameError::Stalled)??, permit });
    }
    // A guest that asks faster than it is answered is not read either, once this much waits. Below that it is read: it
    // reads no answer while it waits to write its next question.
    let cost = length + COST_OF_QUESTION;
    let permit = Arc::clone(waiting).acquire_many_owned(cost).await;
    let permit = permit.map_err(|_| FrameError::Io(std::io::ErrorKind::BrokenPipe.into()))?;
    Ok(QuestionFromGuest::New { id, json: reader.payload(length).await?, permit })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;

    fn frame(kind: u8, id: u32, length: u32) -> Vec<u8> {
        [&[kind][..], &id.to_be_bytes(), &length.to_be_bytes()].concat()
    }

    fn readers(capacity: &Arc<Capacity>) -> (tokio::io::DuplexStream, mpsc::Receiver<QuestionFromGuest>) {
        let (guest, stdout) = tokio::io::duplex(64 << 10);
        let (frames, _) = mpsc::channel(1);
        let (questions, asked) = mpsc::channel(4);
        let artifacts = crate::artifacts::Artifacts::at("/nonexistent".as_ref(), 0);
        let transfers = Arc::new(Transfers::new(artifacts));
        let receivers = Receivers { questions, files: Arc::default(), transfers };
        tokio::spawn(read_frames(FrameReader::new(stdout), frames, receivers, Arc::clone(capacity)));
        (guest, asked)
    }

    /// Writes as long as somebody reads.
    async fn write_until_it_waits(guest: &mut tokio::io::DuplexStream, bytes: &[u8]) -> usize {
        let mut written = 0;
        loop {
            // One thread runs the readers and this.
            let readers_wait = async {
                for _ in 0..1000 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                more = guest.write(&bytes[written % bytes.len()..]) => written += more.unwrap(),
                () = readers_wait => return written,
            }
            assert!(written < 64 << 20, "it is read without end");
        }
    }

    #[tokio::test]
    async fn neither_questions_nor_withdrawals_pile_up() {
        let (mut guest, _questions) = readers(&Arc::default());
        let withdrawals = frame(b'W', 7, 0).repeat(1000);
        assert!(write_until_it_waits(&mut guest, &withdrawals).await < 1 << 20);
        let (mut guest, mut questions) = readers(&Arc::default());
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Some(question) = questions.recv().await {
                kept.push(question);
            }
        });
        let question = [frame(b'Q', 7, 2), b"{}".to_vec()].concat().repeat(1000);
        let written = write_until_it_waits(&mut guest, &question).await;
        assert!(written / 11 < WAITING_QUESTIONS / 512 + 20_000, "{written}");
    }

    #[tokio::test]
    async fn a_large_question_that_never_ends_costs_its_own_session_alone() {
        let capacity =
            Arc::new(Capacity::with(&Arc::default(), Duration::from_millis(10), Duration::from_secs(1)));
        let large = 64 << 20;
        let (mut stalled, _asked) = readers(&capacity);
        stalled.write_all(&frame(b'Q', 1, large)).await.unwrap();
        stalled.write_all(b"{").await.unwrap();
        let (mut other, mut asked) = readers(&capacity);
        let writing = async {
            other.write_all(&frame(b'Q', 2, large)).await.unwrap();
            other.write_all(&vec![b' '; large as usize]).await.unwrap();
            other.write_all(&[frame(b'Q', 3, 2), b"{}".to_vec()].concat()).await.unwrap();
        };
        let reading = async {
            let first = asked.recv().await;
            assert!(matches!(first, Some(QuestionFromGuest::Skipped(2))), "{first:?}");
            assert!(matches!(asked.recv().await, Some(QuestionFromGuest::New { id: 3, .. })));
        };
        tokio::join!(writing, reading);
        while stalled.write_all(b" ").await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(capacity.for_large_question(large).await.is_some(), "it kept its permit beyond its session");
    }
}
