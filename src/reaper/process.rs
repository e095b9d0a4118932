//! What the reaper process does. It reads lines from its standard input, one for each thing that begins or ends to exist:
//!
//! - `instance FOLDER`: the folder where the bridge records its sandboxes
//! - `started ID`, `ended ID`: a process group of a server
//!
//! When the input ends, the bridge is gone. What exists then is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, BufRead};
use std::num::NonZeroI32;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use codebridge_runtimes::{Instance, process_start_time, reclaim_instance};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long the owner may take to exit after it has closed its end of the pipe.
const OWNER_LIMIT: Duration = Duration::from_secs(2);
const OWNER_STEP: Duration = Duration::from_millis(20);
/// How long it tries to remove what the bridge has left. One try with an engine that does not answer takes longer, and is the
/// only one.
const RECLAIM_LIMIT: Duration = Duration::from_secs(3);
const RECLAIM_STEP: Duration = Duration::from_millis(200);
/// How long servers may take to exit by themselves after their input has ended.
const GRACE: Duration = Duration::from_millis(1_000);
/// How long they may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(1_000);
const GROUP_STEP: Duration = Duration::from_millis(50);

/// Waits for the end of standard input, then removes what `owner`, the bridge's process id, has left.
///
/// Until then the process is one thread in one read, so that it costs the bridge's start next to nothing.
///
/// # Errors
/// The process cannot be set up.
pub fn run(owner: u32) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        ignore_polite_signals();
        let started = process_start_time(owner);
        // Nothing else runs on this thread that the read could block.
        let left = Leftovers::read(io::stdin().lock());
        if left.is_empty() {
            return;
        }
        // Servers end at once: a bridge that exits may wait for this. Sandboxes it may still be removing itself.
        let sandboxes = async {
            wait_for_exit(owner, started, &left.instances).await;
            reclaim(left.instances).await;
        };
        // This process has no output. The next bridge removes what it cannot remove.
        tokio::join!(end_groups(&left.groups), sandboxes);
    });
    Ok(())
}

/// A supervisor that signals every process of a service signals the reaper too. It has to outlive the bridge, and exits
/// with it anyway.
fn ignore_polite_signals() {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
        // A handler without a listener replaces the default, which is to exit.
        let _ = signal(kind);
    }
}

/// Process groups, each with the start time of its leader.
type Groups = BTreeMap<NonZeroI32, Option<u64>>;

/// What exists when the input ends.
#[derive(Debug, Default)]
struct Leftovers {
    instances: BTreeSet<PathBuf>,
    groups: Groups,
}

impl Leftovers {
    fn read(mut input: impl BufRead) -> Self {
        let mut left = Self::default();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            match parse_line(line.strip_suffix(b"\n").unwrap_or(&line)) {
                Some(Line::Instance(folder)) => {
                    left.instances.insert(folder);
                }
                Some(Line::Started(group)) => {
                    left.groups.insert(group.as_raw_nonzero(), start_time(group));
                }
                Some(Line::Ended(group)) => {
                    left.groups.remove(&group.as_raw_nonzero());
                }
                None => {}
            }
            line.clear();
        }
        left
    }

    /// Whether the bridge has removed everything itself: its last act is to remove its folder.
    fn is_empty(&self) -> bool {
        self.groups.is_empty() && !any_exists(&self.instances)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Instance(PathBuf),
    Started(Pid),
    Ended(Pid),
}

fn parse_line(line: &[u8]) -> Option<Line> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (event, value) = (&line[..space], &line[space + 1..]);
    match event {
        b"instance" => Some(Line::Instance(OsStr::from_bytes(value).into())),
        b"started" => parse_group(value).map(Line::Started),
        b"ended" => parse_group(value).map(Line::Ended),
        _ => None,
    }
}

/// Never an id with another meaning to kill(2).
fn parse_group(text: &[u8]) -> Option<Pid> {
    let id = std::str::from_utf8(text).ok()?.parse().ok().filter(|id| *id > 1)?;
    Pid::from_raw(id)
}

fn any_exists(folders: &BTreeSet<PathBuf>) -> bool {
    folders.iter().any(|folder| folder.exists())
}

/// Waits until the owner is gone, or what it recorded: the pipe closes a moment before, and an owner that lives on cleans up by
/// itself.
async fn wait_for_exit(owner: u32, started: Option<u64>, instances: &BTreeSet<PathBuf>) {
    let is_alive = || started.is_some() && process_start_time(owner) == started;
    let mut waited = Duration::ZERO;
    while waited < OWNER_LIMIT && any_exists(instances) && is_alive() {
        tokio::time::sleep(OWNER_STEP).await;
        waited += OWNER_STEP;
    }
}

/// Removes what the folders record, and tries again for a while: another bridge may be removing the same, or the host may have
/// no process left for a moment.
async fn reclaim(folders: BTreeSet<PathBuf>) {
    let deadline = Instant::now() + RECLAIM_LIMIT;
    for folder in folders {
        loop {
            match Instance::open(folder.clone()) {
                Some(instance) => drop(reclaim_instance(&instance).await),
                // The bridge has removed what was in it, and could not remove the folder itself.
                None => drop(std::fs::remove_dir(&folder)),
            }
            if !folder.exists() || Instant::now() > deadline {
                break;
            }
            tokio::time::sleep(RECLAIM_STEP).await;
        }
    }
}

/// Waits a moment for the groups to exit, then sends SIGTERM, then SIGKILL.
async fn end_groups(groups: &Groups) {
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
            tokio::time::sleep(GROUP_STEP).await;
            waited += GROUP_STEP;
        }
    }
}

fn start_time(group: Pid) -> Option<u64> {
    process_start_time(group.as_raw_nonzero().get().try_into().ok()?)
}

/// Returns a group that has the same leader as before, or none any more: the id of a group is not used again as long as
/// the group has members.
fn still_there(group: Pid, started: Option<u64>) -> Option<Pid> {
    let leader = start_time(group);
    (test_kill_process_group(group).is_ok() && (leader.is_none() || leader == started)).then_some(group)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;

    use codebridge_runtimes::exec::{CommandLine, group_of, spawn_piped, terminate};
    use futures_util::FutureExt;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn an_owner_is_waited_for_only_while_it_may_have_sandboxes() {
        let own = std::process::id();
        let waits = |folders: &[&Path]| {
            let instances = folders.iter().map(|folder| folder.to_path_buf()).collect();
            wait_for_exit(own, process_start_time(own), &instances).now_or_never().is_none()
        };
        let instance = tempfile::tempdir().unwrap();
        assert!(waits(&[instance.path()]));
        assert!(!waits(&[]) && !waits(&[&instance.path().join("removed")]));
    }

    #[tokio::test]
    async fn groups_that_exist_at_the_end_are_killed_even_if_they_ignore_sigterm() {
        let ignoring =
            CommandLine::new("/bin/sh").args(["-c", "trap '' TERM; sleep 1000 & echo; wait; sleep 1000"]);
        let mut stubborn = spawn_piped(&ignoring).unwrap();
        let mut spared = spawn_piped(&CommandLine::new("/bin/sh").args(["-c", "read x"])).unwrap();
        // It ignores signals from here on.
        stubborn.stdout.as_mut().unwrap().read_u8().await.unwrap();
        let (ended, kept) = (group_of(&stubborn).unwrap(), group_of(&spared).unwrap());
        let (ended_id, kept_id) = (ended.as_raw_nonzero(), kept.as_raw_nonzero());
        let lines = format!("started {ended_id}\nstarted {kept_id}\nnoise\nended {kept_id}\n");
        let left = Leftovers::read(lines.as_bytes());
        let (_, status) = tokio::join!(end_groups(&left.groups), stubborn.wait());
        assert_eq!(status.unwrap().signal(), Some(9));
        assert!(test_kill_process_group(kept).is_ok());
        terminate(&mut spared, Some(kept), Duration::ZERO).await;
        // The id may mean another group by now: only the leader that it had counts.
        let another = Groups::from([(kept_id, Some(1))]);
        assert!(
            another
                .iter()
                .all(|(id, started)| still_there(Pid::from_raw(id.get()).unwrap(), *started).is_none())
        );
    }

    #[tokio::test]
    async fn a_folder_that_only_its_bridge_could_not_remove_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let [empty, other] = ["empty", "other"].map(|name| base.path().join(name));
        std::fs::create_dir_all(&empty).unwrap();
        std::fs::create_dir_all(other.join("of-somebody")).unwrap();
        reclaim([empty.clone(), other.clone()].into()).await;
        assert!(!empty.exists() && other.exists());
    }

    #[test]
    fn lines_name_a_folder_or_a_group_and_nothing_else_is_read() {
        let group = Pid::from_raw(42).unwrap();
        assert_eq!(parse_line(b"started 42"), Some(Line::Started(group)));
        assert_eq!(parse_line(b"ended 42"), Some(Line::Ended(group)));
        let folder = Line::Instance(OsStr::from_bytes(b"/run/a b/\xff").into());
        assert_eq!(parse_line(b"instance /run/a b/\xff"), Some(folder));
        for line in [
            "", "started", "42", "started 1", "started 0", "started -7", "ended x", "é 7",
            "ended 99999999999",
        ] {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn nothing_is_left_of_a_bridge_that_cleaned_up() {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("instance {}\nstarted 42\nended 42\n", folder.path().display());
        assert!(!Leftovers::read(line.as_bytes()).is_empty());
        drop(folder);
        assert!(Leftovers::read(line.as_bytes()).is_empty());
    }
}
