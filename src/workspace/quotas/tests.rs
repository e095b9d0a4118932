//! Places and days of users, with a clock that the test sets.

use std::cell::Cell;

use super::*;

fn quotas(most_runs: usize, user_runs: usize, seconds: Option<u64>, bytes: Option<u64>) -> Arc<Quotas> {
    Arc::new(Quotas {
        state: Mutex::default(),
        most_runs,
        user_runs,
        seconds: seconds.map(Duration::from_secs),
        bytes,
        folder: None,
        is_unwritten: AtomicBool::new(false),
        clock,
    })
}

thread_local! {
    /// Seconds since 1970.
    static TIME: Cell<u64> = const { Cell::new(100 * DAY + 3600) };
}

fn clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(TIME.get())
}

const MINUTE: Duration = Duration::from_secs(60);

/// Polls once, so that the call waits.
async fn begin<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Option<F::Output> {
    tokio::select! {
        biased;
        done = future => Some(done),
        () = std::future::ready(()) => None,
    }
}

#[tokio::test]
async fn free_places_go_to_users_in_turn() {
    let quotas = quotas(1, 8, None, None);
    let (first, second): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let held = quotas.place(&first, MINUTE).await.unwrap();
    let mut waiting = Vec::new();
    for user in [&first, &first, &second] {
        let mut place = Box::pin(quotas.place(user, MINUTE));
        assert!(begin(&mut place).await.is_none());
        waiting.push((Arc::clone(user), place));
    }
    assert_eq!(quotas.load(), Load { running: 1, waiting: 3 });
    drop(held);
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let mut next = None;
        for (index, (_, place)) in waiting.iter_mut().enumerate() {
            if let Some(place) = begin(place).await {
                next = Some((index, place));
                break;
            }
        }
        let (index, place) = next.unwrap();
        order.push(waiting.remove(index).0);
        drop(place);
    }
    assert_eq!(order.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b", "a"]);
    assert_eq!(quotas.load(), Load::default());
}

#[tokio::test]
async fn a_user_has_only_so_many_runs_and_does_not_stop_others() {
    let quotas = quotas(3, 1, None, None);
    let (first, second): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let held = quotas.place(&first, MINUTE).await.unwrap();
    let mut more = Box::pin(quotas.place(&first, MINUTE));
    assert!(begin(&mut more).await.is_none());
    let other = quotas.place(&second, MINUTE).await.unwrap();
    assert!(begin(&mut more).await.is_none());
    drop(held);
    assert!(begin(&mut more).await.unwrap().is_ok());
    drop(other);
    assert_eq!(quotas.load(), Load::default());
}

#[tokio::test]
async fn a_call_that_gave_up_takes_no_place() {
    let quotas = quotas(1, 1, None, None);
    let user: Arc<str> = "a".into();
    let held = quotas.place(&user, MINUTE).await.unwrap();
    let mut given_up = Box::pin(quotas.place(&user, MINUTE));
    assert!(begin(&mut given_up).await.is_none());
    drop(given_up);
    drop(held);
    assert!(quotas.place(&user, MINUTE).await.is_ok());
    assert_eq!(quotas.load(), Load::default());
}

#[tokio::test]
async fn a_user_has_only_so_many_calls_that_wait() {
    let quotas = quotas(1, 1, None, None);
    let (user, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let held = quotas.place(&user, MINUTE).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..MOST_WAITING {
        waiting.push(Box::pin(quotas.place(&user, MINUTE)));
        assert!(begin(waiting.last_mut().unwrap()).await.is_none());
    }
    assert_eq!(quotas.load(), Load { running: 1, waiting: MOST_WAITING });
    assert_eq!(quotas.place(&user, MINUTE).await.unwrap_err(), NoPlace::TooMany);
    let mut of_other = Box::pin(quotas.place(&other, MINUTE));
    assert!(begin(&mut of_other).await.is_none(), "others have a queue of their own");
    // Each that is given up makes room for one, and for one only.
    drop(waiting.remove(7));
    assert_eq!(quotas.load().waiting, MOST_WAITING);
    waiting.push(Box::pin(quotas.place(&user, MINUTE)));
    assert!(begin(waiting.last_mut().unwrap()).await.is_none());
    assert_eq!(quotas.place(&user, MINUTE).await.unwrap_err(), NoPlace::TooMany);
    drop(waiting);
    assert_eq!(quotas.load(), Load { running: 1, waiting: 1 });
    // Whose calls were all given up does not come twice in turn.
    let mut again = [Box::pin(quotas.place(&user, MINUTE)), Box::pin(quotas.place(&user, MINUTE))];
    for place in &mut again {
        assert!(begin(place).await.is_none());
    }
    drop(held);
    let first = begin(&mut again[0]).await.unwrap();
    assert!(begin(&mut of_other).await.is_none() && begin(&mut again[1]).await.is_none());
    drop(first);
    assert!(begin(&mut again[1]).await.is_none(), "it is the other's turn");
    drop(begin(&mut of_other).await.unwrap());
    assert!(begin(&mut again[1]).await.unwrap().is_ok());
    assert_eq!(quotas.load(), Load::default());
}

#[tokio::test]
async fn what_a_run_did_not_take_of_the_day_comes_back() {
    let quotas = quotas(8, 8, Some(90), Some(100));
    let user: Arc<str> = "a".into();
    let mut first = quotas.place(&user, MINUTE).await.unwrap();
    let second = quotas.place(&user, MINUTE).await.unwrap();
    assert_eq!((first.limit(MINUTE), second.limit(MINUTE)), (MINUTE, Duration::from_secs(30)));
    let third = quotas.place(&user, MINUTE).await.unwrap_err();
    assert_eq!(third, NoPlace::Seconds(Duration::from_secs(90)));
    drop(second);
    first.used(Duration::from_secs(5), 100);
    drop(first);
    assert_eq!(quotas.place(&user, MINUTE).await.unwrap_err(), NoPlace::Bytes(100));
    assert!(quotas.place(&"b".into(), MINUTE).await.is_ok());
}

#[tokio::test]
async fn a_run_across_midnight_counts_for_both_days() {
    let quotas = quotas(8, 8, Some(100), Some(100));
    let user: Arc<str> = "a".into();
    TIME.set(101 * DAY - 50);
    let mut first = quotas.place(&user, MINUTE).await.unwrap();
    let mut second = quotas.place(&user, MINUTE).await.unwrap();
    assert_eq!(second.limit(MINUTE), Duration::from_secs(40));
    TIME.set(101 * DAY + 10);
    // What is set aside for runs under way counts on the new day too.
    let third = quotas.place(&user, MINUTE).await.unwrap_err();
    assert_eq!(third, NoPlace::Seconds(Duration::from_secs(100)));
    first.used(MINUTE, 99);
    drop(first);
    let used = |quotas: &Quotas| quotas.lock().users.get("a").map(|user| user.used);
    assert_eq!(used(&quotas), Some(Used { time: Duration::from_secs(10), bytes: 99 }));
    second.used(Duration::from_secs(3), 0);
    drop(second);
    assert_eq!(used(&quotas).unwrap().time, Duration::from_secs(13));
    assert_eq!(quotas.lock().users["a"].reserved, Duration::ZERO);
}

#[tokio::test]
async fn a_day_counts_for_the_next_process_too() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let quotas = Arc::into_inner(quotas(8, 8, Some(100), Some(1000))).unwrap();
        Arc::new(Quotas { folder: Some(folder.path().to_owned()), ..quotas })
    };
    let user: Arc<str> = "a".into();
    let quotas = start();
    let mut place = quotas.place(&user, MINUTE).await.unwrap();
    place.used(Duration::from_secs(30), 5);
    drop(place);
    quotas.save();
    quotas.forget_idle_users();
    assert!(quotas.lock().users.is_empty());
    assert!(quotas.charge(&user, Duration::from_secs(10)));
    quotas.save();
    let again = start();
    let place = again.place(&user, MINUTE).await.unwrap();
    assert_eq!(again.lock().users["a"].used, Used { time: Duration::from_secs(40), bytes: 5 });
    drop(place);
    assert!(!again.charge(&user, MINUTE), "the day is used up");
    TIME.set(TIME.get() + DAY);
    assert!(start().place(&user, MINUTE).await.is_ok());
}

#[tokio::test]
async fn nothing_begins_after_the_end() {
    let quotas = quotas(1, 1, None, None);
    let user: Arc<str> = "a".into();
    let held = quotas.place(&user, MINUTE).await.unwrap();
    let mut waiting = Box::pin(quotas.place(&user, MINUTE));
    assert!(begin(&mut waiting).await.is_none());
    quotas.close();
    assert_eq!(begin(&mut waiting).await.unwrap().unwrap_err(), NoPlace::Closed);
    assert_eq!(quotas.place(&user, MINUTE).await.unwrap_err(), NoPlace::Closed);
    assert_eq!(quotas.load().running, 1);
    drop(held);
}
