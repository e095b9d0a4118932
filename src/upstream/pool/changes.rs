//! What a server says of its lists: that one has changed.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long to wait after a server says that a list has changed. It doubles with each change in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The changes of one list of a server.
pub(super) struct Changes {
    announced: watch::Receiver<u64>,
    pause: Duration,
}

impl Changes {
    pub(super) fn new(announced: watch::Receiver<u64>) -> Self {
        Self { announced, pause: FIRST_PAUSE }
    }

    /// Waits until the list has changed; false when the server has ended.
    pub(super) async fn next(&mut self, gone: &CancellationToken) -> bool {
        let quiet_since = Instant::now();
        tokio::select! {
            changed = self.announced.changed() => if changed.is_err() { return false },
            () = gone.cancelled() => return false,
        }
        // Changes often come in series, and some servers announce one after every request.
        if quiet_since.elapsed() > LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
        }
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            () = gone.cancelled() => return false,
        }
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.announced.mark_unchanged();
        true
    }
}
