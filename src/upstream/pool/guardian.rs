//! The guardian of server processes: a child of the same binary that outlives a bridge which was killed, just long enough
//! to end the servers that do not notice by themselves.
//!
//! It reads lines from its standard input: `+ID` for a process group that exists now, `-ID` for one that has gone. When
//! the input ends, the bridge is gone.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::num::NonZeroI32;
use std::path::PathBuf;
use std::time::Duration;

use codebridge_runtimes::exec::{CommandLine, spawn_guardian};
use codebridge_runtimes::process_start_time;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::AsyncWriteExt;
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

    /// Starts it, unless it runs: before there is anything to guard.
    pub(super) async fn start(&self) {
        let mut child = self.child.lock().await;
        let Some(program) = self.program.as_ref().filter(|_| child.is_none()) else { return };
        match spawn_guardian(&CommandLine::new(program).arg(SUBCOMMAND)) {
            Ok(started) => *child = Some(started),
            Err(error) => tracing::warn!(%error, "no guardian for servers"),
        }
    }

    /// Has it know a process group.
    pub(super) async fn watch(&self, group: Pid) {
        tell(&mut *self.child.lock().await, '+', group).await;
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
///
/// # Errors
/// It cannot even begin.
pub fn guard() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        ignore_polite_signals();
        // There is nobody else on this thread to block.
        let groups = read_groups(io::stdin().lock());
        end(&groups).await;
    });
    Ok(())
}

/// Process groups, each with the start time of its leader.
type Groups = BTreeMap<NonZeroI32, Option<u64>>;

/// The groups that exist when the input ends.
fn read_groups(input: impl BufRead) -> Groups {
    let mut groups = Groups::new();
    for line in input.lines().map_while(Result::ok) {
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
    groups
}

/// Waits a moment for them to leave, then asks, then insists.
async fn end(groups: &Groups) {
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

/// What asks the bridge to end asks its guardian too; it has to outlive the bridge, and ends with it anyway.
fn ignore_polite_signals() {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        // A handler that nobody listens to replaces the default, which is to end.
        let _ = signal(kind);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use codebridge_runtimes::exec::{group_of, spawn_piped, terminate};
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_exists_when_the_input_ends_is_ended_also_when_it_ignores_that() {
        let ignoring =
            CommandLine::new("/bin/sh").args(["-c", "trap '' TERM; sleep 1000 & echo; wait; sleep 1000"]);
        let mut stubborn = spawn_piped(&ignoring).unwrap();
        let mut spared = spawn_piped(&CommandLine::new("/bin/sh").args(["-c", "read x"])).unwrap();
        // It ignores signals from here on.
        stubborn.stdout.as_mut().unwrap().read_u8().await.unwrap();
        let (ended, kept) = (group_of(&stubborn).unwrap(), group_of(&spared).unwrap());
        let lines = format!(
            "+{}\n+{}\nnoise\n-{}\n",
            ended.as_raw_nonzero(),
            kept.as_raw_nonzero(),
            kept.as_raw_nonzero()
        );
        let groups = read_groups(lines.as_bytes());
        let (_, status) = tokio::join!(end(&groups), stubborn.wait());
        assert_eq!(status.unwrap().signal(), Some(9));
        assert!(test_kill_process_group(kept).is_ok());
        terminate(&mut spared, Some(kept), Duration::ZERO).await;
        // The id may mean something else by now: only the leader it had counts.
        let another = Groups::from([(kept.as_raw_nonzero(), Some(1))]);
        assert!(
            another
                .iter()
                .all(|(id, started)| still_there(Pid::from_raw(id.get()).unwrap(), *started).is_none())
        );
    }

    #[test]
    fn only_groups_are_read() {
        assert_eq!(parse_line("+42"), Some(('+', Pid::from_raw(42).unwrap())));
        assert_eq!(parse_line("-42"), Some(('-', Pid::from_raw(42).unwrap())));
        for line in ["", "+", "42", "+1", "+0", "+-7", "-x", "é7", "+99999999999"] {
            assert_eq!(parse_line(line), None, "{line}");
        }
    }
}
