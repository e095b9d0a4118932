//! Bodies of requests, within bounds; and bodies of answers, which hold what their request holds and end in time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::mcp::bounds::count_values;
use crate::server::{Budget, Held};

/// The longest body of a request.
pub(super) const LONGEST: usize = 16 << 20;
/// Values of the JSON in a body, and about how many bytes each takes when it is parsed.
const MOST_VALUES: usize = 1 << 17;
const BYTES_OF_VALUE: usize = 256;
/// How long a body may take to arrive.
pub(super) const ARRIVAL: Duration = Duration::from_secs(60);
/// Bytes of the bodies and results that one user can hold at once.
pub(super) const HELD: usize = 4 * LONGEST;
/// Bytes of an answer that are passed on at once: what follows stays with those that count it.
const PIECE: usize = 64 << 10;

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(pub(super) StatusCode, pub(super) &'static str);

const TOO_LONG: Refused = Refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 16 MiB");
const TOO_SLOW: Refused = Refused(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 60 seconds");
const TOO_MANY: Refused = Refused(
    StatusCode::TOO_MANY_REQUESTS,
    "the requests of this user and the answers that it has not read are too large together: try again later",
);

/// Reads the body of a request, which has to arrive `within` a time, and holds it for its user.
///
/// # Errors
/// It is too long, comes too slowly, or the user holds too much.
pub(super) async fn read(
    body: Body,
    budget: &Arc<Budget>,
    within: Duration,
) -> Result<(Bytes, Held), Refused> {
    let most = match body.size_hint().upper().map(usize::try_from) {
        Some(Ok(length)) if length <= LONGEST => length,
        Some(_) => return Err(TOO_LONG),
        None => LONGEST,
    };
    let held = budget.hold(most).ok_or(TOO_MANY)?;
    let reading = Limited::new(body, LONGEST).collect();
    match tokio::time::timeout(within, reading).await {
        Ok(Ok(body)) => {
            let body = body.to_bytes();
            let values = count_values(&body);
            match values > MOST_VALUES {
                true => Err(Refused(StatusCode::BAD_REQUEST, "the body has too many values")),
                false if held.resize(body.len() + (values - 1) * BYTES_OF_VALUE) => Ok((body, held)),
                false => Err(TOO_MANY),
            }
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(TOO_LONG),
        Ok(Err(_)) => Err(Refused(StatusCode::BAD_REQUEST, "the body ended early")),
        Err(_) => Err(TOO_SLOW),
    }
}

/// The body of an answer. It holds a value until it was sent or dropped, and ends when its credential does.
pub(super) struct Answer<T> {
    body: Body,
    /// What is left of a long piece.
    rest: Bytes,
    end: Option<Pin<Box<Sleep>>>,
    _held: T,
}

impl<T: Unpin + Send + 'static> Answer<T> {
    /// Returns the body with what it holds, until a time.
    pub(super) fn of(body: Body, held: T, until: Option<std::time::Instant>) -> Body {
        let end = until.map(|until| Box::pin(sleep_until(Instant::from_std(until))));
        Body::new(Self { body, rest: Bytes::new(), end, _held: held })
    }
}

impl<T: Unpin> HttpBody for Answer<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Some(end) = &mut this.end
            && end.as_mut().poll(context).is_ready()
        {
            (this.body, this.rest, this.end) = (Body::empty(), Bytes::new(), None);
        }
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_holds_its_value_until_nearly_all_was_taken() {
        let held = Arc::new(());
        let long = Body::from(vec![0; 3 * PIECE]);
        let mut answer = Answer::of(long, Arc::clone(&held), None);
        assert_eq!(answer.size_hint().exact(), Some(3 * PIECE as u64));
        for left in [2, 1, 0] {
            let piece = answer.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((piece.len(), Arc::strong_count(&held)), (PIECE, 2));
            assert_eq!(answer.size_hint().exact(), Some(left * PIECE as u64));
        }
        assert!(answer.frame().await.is_none());
        drop(answer);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    /// A body that never ends. It sends a byte whenever its clock says so.
    struct Endless {
        clock: tokio::time::Interval,
        _alive: Arc<()>,
    }

    impl Endless {
        fn body(every: Duration) -> (Body, Arc<()>) {
            let alive = Arc::new(());
            let clock = tokio::time::interval(every);
            (Body::new(Self { clock, _alive: Arc::clone(&alive) }), alive)
        }
    }

    impl HttpBody for Endless {
        type Data = Bytes;
        type Error = axum::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            self.clock.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b" ")))))
        }
    }

    #[tokio::test]
    async fn an_answer_ends_with_its_credential() {
        let (body, alive) = Endless::body(Duration::from_millis(1));
        let soon = std::time::Instant::now() + Duration::from_millis(20);
        let mut answer = Answer::of(body, (), Some(soon));
        let mut pieces = 0;
        while let Some(piece) = answer.frame().await {
            pieces += piece.unwrap().into_data().unwrap().len();
        }
        assert!(pieces > 0, "it has begun");
        assert_eq!(Arc::strong_count(&alive), 1, "what made it is ended too");
    }

    #[tokio::test]
    async fn a_body_that_comes_slowly_is_given_up_and_holds_nothing() {
        let budget = Budget::new(LONGEST);
        let (body, alive) = Endless::body(Duration::from_millis(1));
        let refused = read(body, &budget, Duration::from_millis(50)).await.err();
        assert_eq!(refused, Some(TOO_SLOW));
        assert_eq!(Arc::strong_count(&alive), 1);
        assert!(budget.hold(LONGEST).is_some(), "all of the budget is free again");
        assert!(TOO_SLOW.1.contains(&format!("{} seconds", ARRIVAL.as_secs())));
    }

    #[tokio::test]
    async fn bodies_are_held_as_long_as_their_calls() {
        let budget = Budget::new(HELD);
        let read_one = || read(Body::from(vec![b' '; LONGEST]), &budget, ARRIVAL);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(read_one().await.unwrap().1);
        }
        assert_eq!(read_one().await.err(), Some(TOO_MANY));
        held.pop();
        // Values take more than their bytes.
        let values = format!("[{}0]", "0,".repeat(MOST_VALUES - 2));
        assert_eq!(read(Body::from(values.clone()), &budget, ARRIVAL).await.err(), Some(TOO_MANY));
        held.clear();
        assert!(read(Body::from(values), &budget, ARRIVAL).await.is_ok());
    }
}
