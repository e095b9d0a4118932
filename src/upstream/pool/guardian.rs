//! The guardian of server processes: a child of the same binary that outlives a bridge which was killed, just long enough
//! to end the servers that do not notice by themselves.
//!
//! It reads lines from its standard input: `+ID` for a process group that exists now, `-ID` for one that has gone. When
//! the input ends, the bridge is gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, spawn_guardian};
use codebridge_runtimes::process_start_time;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;
use tokio::sync::Mutex;

/// The hidden subcommand that it is started with.
pub const SUBCOMMAND: &str = "server-guardian";
/// How long servers have to leave by themselves once their input has ended.
const GRACE: Duration = Duration::from_millis(1_000);
/// How long they have after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(1_000);
/// How often it is looked whether they have left.
const STEP: Duration = Duration::from_millis(50);
/// A guardian with nothing to do is gone at once.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The bridge's end of its guardian, which is started with the first server.
#[derive(Debug)]
pub(super) struct Guardian {
    program: Option<PathBuf>,
    child: Mutex<Option<Child>>,
}

impl Guardian {
    /// One of this program; without one, servers are trusted to leave when their input ends.
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        Self { program, child: Mutex::default() }
    }

    /// Has it know a process group.
    pub(super) async fn watch(&self, group: Pid) {
        let mut child = self.child.lock().await;
        if child.is_none() {
            let Some(program) = &self.program else { return };
            match spawn_guardian(&CommandLine::new(program).arg(SUBCOMMAND)) {
                Ok(started) => *child = Some(started),
                Err(error) => tracing::warn!(%error, "no guardian for servers"),
            }
        }
        tell(&mut child, '+', group).await;
    }

    /// Has it forget a process group.
    pub(super) async fn release(&self, group: Pid) {
        tell(&mut *self.child.lock().await, '-', group).await;
    }

    /// Lets it go.
    pub(super) async fn dismiss(&self) {
        let Some(mut child) = self.child.lock().await.take() else { return };
        drop(child.stdin.take());
        if tokio::time::timeout(RELEASE_LIMIT, child.wait()).await.is_err() {
            tracing::warn!("the guardian of servers is still busy");
        }
    }
}

async fn tell(child: &mut Option<Child>, sign: char, group: Pid) {
    if let Some(stdin) = child.as_mut().and_then(|child| child.stdin.as_mut()) {
        let line = format!("{sign}{}\n", group.as_raw_nonzero());
        // A guardian that was killed can do no more for anybody.
        let _ = stdin.write_all(line.as_bytes()).await;
    }
}

/// What the guardian does: waits for the end of its standard input, then ends every group that it was told of.
pub async fn guard() {
    outlive_the_terminal();
    let mut groups = BTreeMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match parse_line(&line) {
            Some(('+', group)) => {
                groups.insert(group.as_raw_nonzero(), start_time(group));
            }
            Some((_, group)) => {
                groups.remove(&group.as_raw_nonzero());
            }
            None => {}
        }
    }
    let left = || groups.iter().filter_map(|(id, started)| still_there(Pid::from_raw(id.get())?, *started));
    for (signal, grace) in
        [(None, GRACE), (Some(Signal::TERM), TERM_GRACE), (Some(Signal::KILL), Duration::ZERO)]
    {
        if let Some(signal) = signal {
            left().for_each(|group| {
                let _ = kill_process_group(group, signal);
            });
        }
        let mut waited = Duration::ZERO;
        while waited < grace && left().next().is_some() {
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
    }
}

/// Never a group that means something else to kill(2).
fn parse_line(line: &str) -> Option<(char, Pid)> {
    let sign = line.chars().next().filter(|sign| matches!(sign, '+' | '-'))?;
    let group = line[1..].parse().ok().filter(|id| *id > 1).and_then(Pid::from_raw)?;
    Some((sign, group))
}

fn start_time(group: Pid) -> Option<u64> {
    process_start_time(group.as_raw_nonzero().get().try_into().ok()?)
}

/// A group with the same leader as before, or with none any more: as long as it has members its id is not used again.
fn still_there(group: Pid, started: Option<u64>) -> Option<Pid> {
    let leader = start_time(group);
    (test_kill_process_group(group).is_ok() && (leader.is_none() || leader == started)).then_some(group)
}

/// What ends the bridge's terminal or process group must not end its guardian.
fn outlive_the_terminal() {
    use tokio::signal::unix::{SignalKind, signal};
    let _ = rustix::process::setsid();
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        // A handler that nobody listens to replaces the default, which is to end.
        let _ = signal(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_are_read() {
        assert_eq!(parse_line("+42"), Some(('+', Pid::from_raw(42).unwrap())));
        assert_eq!(parse_line("-42"), Some(('-', Pid::from_raw(42).unwrap())));
        for line in ["", "+", "42", "+1", "+0", "+-7", "-x", "é7", "+99999999999"] {
            assert_eq!(parse_line(line), None, "{line}");
        }
    }
}
