//! Keeps calls in the order in which they arrived.
//!
//! `rmcp` handles every request in a task of its own, and tasks start in any order. Calls of one session have to queue in
//! the order of the client.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

/// Gives each call its turn.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: Option<oneshot::Receiver<()>>,
}

/// The turn of one call. It is an extension of the request, which has to be `Clone`.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Arc<Mutex<Option<Place>>>);

#[derive(Debug)]
struct Place {
    /// Closes when the previous call has started; None for the first.
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when this call has started.
    _taken: oneshot::Sender<()>,
}

impl Order {
    /// Returns the next turn.
    pub(crate) fn next(&mut self) -> Turn {
        let (taken, taken_by_last) = oneshot::channel();
        let place = Place { before: self.last.replace(taken_by_last), _taken: taken };
        Turn(Arc::new(Mutex::new(Some(place))))
    }
}

impl Turn {
    /// Starts a call when its turn has come. The call has to queue for its session in its first poll.
    pub(crate) async fn start<T>(&self, call: impl Future<Output = T>) -> T {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = place.as_mut().and_then(|place| place.before.take()) {
            // Nothing is sent: the sender is dropped when the previous call has started or has been dropped.
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
    async fn an_unused_turn_does_not_block_the_next_one() {
        let mut order = Order::default();
        let (first, second, third) = (order.next(), order.next(), order.next());
        drop((first, second));
        assert_eq!(third.start(async { 3 }).await, 3);
        // Starting a second time does not wait.
        assert_eq!(third.start(async { 4 }).await, 4);
    }
}
