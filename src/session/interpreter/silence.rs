//! Connections that break without an end, as those through other machines do: the other end is asked whether it is there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};

use crate::session::frames::ToGuest;

/// Silence after which the other end is asked, and the pause until it is asked again.
pub(super) const QUESTION_PAUSE: Duration = Duration::from_secs(5);
/// How soon an answer before a run is noticed.
const STEP: Duration = Duration::from_millis(2);
/// Questions without an answer, after which nobody is there.
const MOST_QUESTIONS: u32 = 3;

/// What this end has seen of a connection.
#[derive(Debug)]
pub(super) struct Traffic {
    /// How often something came.
    heard: AtomicU64,
    /// Whether this end waits for what comes. While it does not read, nothing that does not come is missed.
    is_read: AtomicBool,
    began: Instant,
    /// When something was taken last, in milliseconds since `began`.
    taken: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        let (heard, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { heard, is_read: AtomicBool::new(false), began: Instant::now(), taken }
    }
}

impl Traffic {
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Whether something should have come within this time, had it been asked for before. While a long frame is on its way,
    /// the questions are behind it.
    fn is_silent_for(&self, time: Duration) -> bool {
        let taken = Duration::from_millis(self.taken.load(Ordering::Relaxed));
        self.is_read() && self.began.elapsed().saturating_sub(taken) >= time
    }
}

/// One direction of a connection whose traffic is seen.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        match polled {
            Poll::Pending => self.traffic.is_read.store(true, Ordering::Relaxed),
            Poll::Ready(_) => {
                self.traffic.is_read.store(false, Ordering::Relaxed);
                self.traffic.heard.fetch_add(1, Ordering::Relaxed);
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        let now = u64::try_from(self.traffic.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.traffic.taken.store(now, Ordering::Relaxed);
        Poll::Ready(taken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns once nobody has answered for long. It asks only after a silence: an interpreter that prints is there.
pub(super) async fn nobody_answers(traffic: Arc<Traffic>, frames: UnboundedSender<ToGuest>, pause: Duration) {
    let (mut heard, mut unanswered) = (traffic.heard(), 0);
    loop {
        sleep(pause).await;
        if heard != traffic.heard() {
            (heard, unanswered) = (traffic.heard(), 0);
        } else if !traffic.is_silent_for(pause / 2) {
            // Nobody could have answered.
        } else if unanswered == MOST_QUESTIONS {
            return;
        } else {
            unanswered += 1;
            let _ = frames.send(ToGuest::Ping);
        }
    }
}

/// Asks at once whether somebody is there, and gives up as [`nobody_answers`] does.
pub(super) async fn somebody_answers(
    traffic: Arc<Traffic>,
    frames: UnboundedSender<ToGuest>,
    pause: Duration,
) -> bool {
    if !traffic.is_read() {
        // There is more to read, which tells.
        return true;
    }
    let before = traffic.heard();
    let _ = frames.send(ToGuest::Ping);
    let seen = Arc::clone(&traffic);
    let answer = async {
        while seen.heard() == before {
            sleep(STEP).await;
        }
    };
    tokio::select! {
        () = answer => true,
        () = nobody_answers(traffic, frames, pause) => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    /// An end that reads all the time, and writes a byte for each question. Returns the other end.
    fn connected(traffic: &Arc<Traffic>) -> (DuplexStream, UnboundedSender<ToGuest>) {
        let (near, far) = duplex(1 << 10);
        let (reader, writer) = split(near);
        let mut reader = Watched::new(reader, Arc::clone(traffic));
        let mut writer = Watched::new(writer, Arc::clone(traffic));
        tokio::spawn(async move { while reader.read_u8().await.is_ok() {} });
        let (frames, mut asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                writer.write_all(b"?").await.unwrap();
            }
        });
        (far, frames)
    }

    #[tokio::test]
    async fn one_that_never_answers_is_given_up_after_a_few_questions() {
        let traffic = Arc::<Traffic>::default();
        let (mut far, frames) = connected(&traffic);
        let began = Instant::now();
        timeout(LONG, nobody_answers(traffic, frames, PAUSE)).await.unwrap();
        assert!(began.elapsed() >= PAUSE * 4);
        let mut asked = [0; 3];
        far.read_exact(&mut asked).await.unwrap();
        assert!(timeout(PAUSE, far.read_u8()).await.is_err(), "one question more");
    }

    #[tokio::test]
    async fn who_is_asked_at_once_answers_or_is_given_up() {
        let traffic = Arc::<Traffic>::default();
        let (mut far, frames) = connected(&traffic);
        let asked = || somebody_answers(Arc::clone(&traffic), frames.clone(), PAUSE);
        assert!(asked().await, "nothing is read yet");
        tokio::task::yield_now().await;
        let (there, ()) = tokio::join!(asked(), async {
            far.read_u8().await.unwrap();
            far.write_all(b".").await.unwrap();
        });
        assert!(there);
        tokio::task::yield_now().await;
        assert!(!timeout(LONG, asked()).await.unwrap());
    }

    #[tokio::test]
    async fn one_that_answers_is_asked_for_ever() {
        let traffic = Arc::<Traffic>::default();
        let (mut far, frames) = connected(&traffic);
        let answering = tokio::spawn(async move {
            for _ in 0..10 {
                far.read_u8().await.unwrap();
                far.write_all(b".").await.unwrap();
            }
        });
        tokio::select! {
            () = nobody_answers(traffic, frames, PAUSE) => panic!("it was given up"),
            answered = answering => answered.unwrap(),
        }
    }

    #[tokio::test]
    async fn an_end_that_does_not_read_and_a_long_frame_on_its_way_are_no_silence() {
        let traffic = Arc::<Traffic>::default();
        let (near, mut far) = duplex(1 << 10);
        let mut near = Watched::new(near, Arc::clone(&traffic));
        far.write_all(b"..").await.unwrap();
        near.read_u8().await.unwrap();
        sleep(PAUSE).await;
        assert!(!traffic.is_silent_for(Duration::ZERO) && traffic.heard() == 1, "nothing is read");
        near.read_u8().await.unwrap();
        assert!(timeout(PAUSE, near.read_u8()).await.is_err());
        assert!(traffic.is_silent_for(PAUSE));
        near.write_all(b"a part of a long frame").await.unwrap();
        assert!(traffic.is_silent_for(Duration::ZERO) && !traffic.is_silent_for(LONG));
    }
}
