//! The guardian: a child of the same binary that outlives a bridge which was killed, just long enough to remove what it
//! owned. It holds one end of a pipe; when the other end closes, the bridge is gone.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, spawn_guardian};
use codebridge_runtimes::{Instance, OwnerState, reclaim_instance};
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};

/// The hidden subcommand that a guardian is started with.
pub const SUBCOMMAND: &str = "guardian";
/// A guardian with nothing to do is gone at once.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The bridge's end of its guardian.
#[derive(Debug)]
pub(super) struct Guardian(Mutex<Guarding>);

#[derive(Debug)]
enum Guarding {
    Starting(JoinHandle<Option<Child>>),
    Started(Option<Child>),
}

impl Guardian {
    /// Begins to start the guardian of an instance. Without one the next bridge sweeps, which is worth a warning only.
    pub(super) fn start(instance: &Path) -> Self {
        let instance = instance.to_owned();
        let start = move || {
            let started = program().and_then(|program| {
                let command = CommandLine::new(program).arg(SUBCOMMAND).arg(instance);
                spawn_guardian(&command).map_err(|error| error.to_string())
            });
            started.inspect_err(|error| tracing::warn!(error, "no guardian")).ok()
        };
        // Starting a program stops the thread that does it for as long as half a bundle takes to write.
        Self(Mutex::new(Guarding::Starting(spawn_blocking(start))))
    }

    /// Waits until it is there.
    pub(super) async fn ready(&self) {
        let mut guarding = self.0.lock().await;
        if let Guarding::Starting(starting) = &mut *guarding {
            let child = starting.await.unwrap_or_default();
            *guarding = Guarding::Started(child);
        }
    }

    /// Lets it go, after everything was removed: it finds nothing to do.
    pub(super) async fn release(&self) {
        self.ready().await;
        let Guarding::Started(child) = &mut *self.0.lock().await else { return };
        let Some(mut child) = child.take() else { return };
        drop(child.stdin.take());
        if tokio::time::timeout(RELEASE_LIMIT, child.wait()).await.is_err() {
            tracing::warn!("the guardian is still busy");
        }
    }
}

fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

/// What the guardian does: waits for the end of its standard input, then removes all that the instance owns.
///
/// Until then it is one thread in one read, so that it costs the bridge's start next to nothing.
///
/// # Errors
/// The removal cannot even begin.
pub fn guard(instance: PathBuf) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        ignore_polite_signals();
        // Nothing is ever sent: any answer means that the bridge is gone. There is nobody else on this thread to block.
        let _ = io::stdin().read(&mut [0]);
        let Some(instance) = Instance::open(instance) else { return };
        // The pipe closes a moment before the process is gone, and a live owner cleans up by itself.
        for _ in 0..100 {
            if instance.owner().state() != OwnerState::Alive {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for error in reclaim_instance(&instance).await.failed {
            tracing::error!(%error, "a sandbox was left behind");
        }
    });
    Ok(())
}

/// What asks the bridge to end asks its guardian too (a supervisor that signals every process of a service): it has to
/// outlive the bridge, and ends with it anyway.
fn ignore_polite_signals() {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        // A handler that nobody listens to replaces the default, which is to end.
        let _ = signal(kind);
    }
}
