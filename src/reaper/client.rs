//! The bridge's end of its reaper.

use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, spawn_reaper};
use rustix::process::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::SUBCOMMAND;

/// A reaper that has nothing to remove exits at once.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// A handle on the reaper of this process. All clones share one reaper, which starts when it is first needed.
#[derive(Debug, Clone)]
pub struct Reaper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: Option<PathBuf>,
    link: Mutex<Link>,
}

#[derive(Debug)]
enum Link {
    NotStarted,
    Running(Child),
    Dismissed,
}

impl Reaper {
    /// A reaper that runs this program.
    pub fn of_this_program() -> Self {
        Self::of(std::env::current_exe().ok())
    }

    /// A reaper that runs `program`. Without a program there is no reaper: servers are trusted to exit when their input
    /// ends, and the next bridge removes the sandboxes.
    pub fn of(program: Option<PathBuf>) -> Self {
        Self(Arc::new(Inner { program, link: Mutex::new(Link::NotStarted) }))
    }

    /// Starts the process, unless it runs.
    pub async fn start(&self) {
        self.ensure_started(&mut *self.0.link.lock().await).await;
    }

    /// Has the sandboxes of an instance folder removed if this bridge is killed.
    pub async fn watch_instance(&self, folder: &Path) {
        let link = &mut *self.0.link.lock().await;
        self.ensure_started(link).await;
        send(link, &[b"instance ", folder.as_os_str().as_bytes(), b"\n"].concat()).await;
    }

    /// Has a process group ended if this bridge is killed.
    pub async fn watch_group(&self, group: Pid) {
        self.send_group("started", group).await;
    }

    /// Has the reaper forget a process group that has ended.
    pub async fn forget_group(&self, group: Pid) {
        self.send_group("ended", group).await;
    }

    /// Lets the process exit, after everything it watches is gone.
    pub async fn dismiss(&self) {
        let link = std::mem::replace(&mut *self.0.link.lock().await, Link::Dismissed);
        let Link::Running(mut child) = link else { return };
        drop(child.stdin.take());
        if tokio::time::timeout(EXIT_LIMIT, child.wait()).await.is_err() {
            tracing::warn!("the reaper is still busy");
        }
    }

    async fn send_group(&self, event: impl Display, group: Pid) {
        let line = format!("{event} {}\n", group.as_raw_nonzero());
        send(&mut *self.0.link.lock().await, line.as_bytes()).await;
    }

    async fn ensure_started(&self, link: &mut Link) {
        let (Link::NotStarted, Some(program)) = (&*link, &self.0.program) else { return };
        let command = CommandLine::new(program).arg(SUBCOMMAND).arg(std::process::id().to_string());
        // Starting a program blocks its thread for as long as writing half a bundle takes.
        let started = spawn_blocking(move || spawn_reaper(&command)).await;
        *link = match started {
            Ok(Ok(child)) => Link::Running(child),
            // The next thing to watch may find the machine less busy.
            Ok(Err(error)) => {
                tracing::warn!(%error, "could not start the reaper");
                Link::NotStarted
            }
            Err(_) => Link::NotStarted,
        };
    }
}

async fn send(link: &mut Link, line: &[u8]) {
    if let Link::Running(Child { stdin: Some(stdin), .. }) = link {
        // A reaper that was killed cannot help any more.
        let _ = stdin.write_all(line).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reaper_that_could_not_be_started_is_started_for_the_next_thing() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("reaper");
        let reaper = Reaper::of(Some(program.clone()));
        reaper.start().await;
        assert!(matches!(*reaper.0.link.lock().await, Link::NotStarted));
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        reaper.start().await;
        assert!(matches!(*reaper.0.link.lock().await, Link::Running(_)));
        reaper.dismiss().await;
        reaper.start().await;
        assert!(matches!(*reaper.0.link.lock().await, Link::Dismissed));
    }
}
