//! Keeps calls in the order in which they were read.
//!
//! The library handles every request in a task of its own, and tasks start in any order; calls of one session have to
//! queue in the order in which the client sent them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

/// Hands out turns, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Option<oneshot::Receiver<()>>,
}

/// One call's turn; it travels with the request, which the library wants to be able to clone.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Arc<Mutex<Option<Place>>>);

#[derive(Debug)]
struct Place {
    /// Ends when the call before has taken its turn; None for the first.
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when this one has.
    _taken: oneshot::Sender<()>,
}

impl Order {
    /// The turn after all that were handed out before.
    pub(crate) fn next(&mut self) -> Turn {
        let (taken, taken_by_last) = oneshot::channel();
        let place = Place { before: self.last.replace(taken_by_last), _taken: taken };
        Turn(Arc::new(Mutex::new(Some(place))))
    }
}

impl Turn {
    /// Starts a call when its turn has come. By its first step a call has to have queued wherever it has to.
    pub(crate) async fn start<T>(&self, call: impl Future<Output = T>) -> T {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = place.as_mut().and_then(|place| place.before.take()) {
            // Nothing is ever sent: the sender goes when the turn was taken, or when its call is no more.
            let _ = before.await;
        }
        let mut call = pin!(call);
        let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
        drop(place);
        match first {
            Poll::Ready(done) => done,
            Poll::Pending => call.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_start_in_order_whatever_the_order_of_their_tasks() {
        let (mut order, started) = (Order::default(), Arc::new(AtomicU32::new(0)));
        let turns: Vec<Turn> = (0..100).map(|_| order.next()).collect();
        let call = |number: u32, turn: Turn| {
            let started = Arc::clone(&started);
            tokio::spawn(async move {
                let call = async {
                    let place = started.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    place
                };
                (number, turn.start(call).await)
            })
        };
        let tasks: Vec<_> = (0..100).zip(turns).rev().map(|(number, turn)| call(number, turn)).collect();
        for task in tasks {
            let (number, place) = task.await.unwrap();
            assert_eq!(number, place);
        }
    }

    #[tokio::test]
    async fn a_turn_that_nobody_takes_holds_nobody_up() {
        let mut order = Order::default();
        let (first, second, third) = (order.next(), order.next(), order.next());
        drop((first, second));
        assert_eq!(third.start(async { 3 }).await, 3);
        // A second start of a clone waits for nobody.
        assert_eq!(third.start(async { 4 }).await, 4);
    }
}
