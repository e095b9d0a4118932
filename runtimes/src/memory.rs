//! Watches the memory of all processes of a sandbox from outside, where no control group counts it.
//!
//! An rlimit holds each process by itself, and a sandbox may have many. So their memory is added up regularly, with that of the
//! kernel for their sockets and pipes. When it is more than the limit, the largest process is killed, as the kernel does for a
//! control group. Between two checks they can grow beyond the limit. Files do not end with a process: where they are watched and
//! become too many, the whole sandbox is ended.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};

use crate::kernel_memory as kernel;
use crate::process::{self, Process};
use crate::process_table::{ProcessTable, Usage};
use crate::watched_folders::{TooMany, WatchedFolders};

/// The time between two checks while code runs. A machine where a check takes long is checked less often, and so are many sandboxes:
/// the checks of all of them take a small part of a processor.
const QUICK: Duration = Duration::from_millis(50);
const SHARE_OF_TIME: u32 = 25;
const LONGEST_QUICK: Duration = Duration::from_millis(500);
/// The time that killed processes have to end before all are counted again.
const ENDING: Duration = Duration::from_secs(1);
/// The time between two checks while the sandbox is idle, at first and at most when nothing grows.
const SLOW: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(8);
/// The least growth in bytes that counts as such.
const GROWTH: u64 = 1 << 20;
/// The bytes that are allowed in addition to the limit, for stacks and our own process in the sandbox. A single process reaches
/// its rlimit, which it notices, before it is killed here.
const ALLOWANCE: u64 = 16 << 20;

/// The sandboxes that are watched and run code.
static AT_WORK: AtomicU32 = AtomicU32::new(0);

/// What a watch counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All memory: there is no control group.
    All,
    /// The memory of TCP and UDP sockets: a control group counts everything else.
    NetworkSockets,
}

/// What a sandbox may use.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    /// The memory of all processes, in bytes.
    pub(crate) memory: u64,
    pub(crate) counted: Counted,
    pub(crate) folders: WatchedFolders,
}

/// What a watch has done so far.
#[derive(Debug, Default)]
struct Done {
    kills: AtomicU32,
    ended: OnceLock<TooMany>,
}

/// Watches one sandbox until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    task: AbortHandle,
    busy: watch::Sender<bool>,
    done: Arc<Done>,
}

impl MemoryWatch {
    /// Watches the descendants of the process that `find` returns when code runs for the first time; the process itself does not
    /// count.
    pub(crate) fn start<F>(allowed: Allowed, find: impl FnMut() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Option<u32>> + Send + 'static,
    {
        let (busy, is_busy) = watch::channel(false);
        let done = Arc::<Done>::default();
        let watching = watch_descendants(find, Arc::new(allowed), is_busy, Arc::clone(&done));
        Self { task: tokio::spawn(watching).abort_handle(), busy, done }
    }

    /// Sets whether code runs in the sandbox.
    pub(crate) fn set_busy(&self, busy: bool) {
        let has_changed = self.busy.send_if_modified(|is| std::mem::replace(is, busy) != busy);
        match (has_changed, busy) {
            (true, true) => drop(AT_WORK.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(AT_WORK.fetch_sub(1, Ordering::Relaxed)),
            (false, _) => {}
        }
    }

    pub(crate) fn kills(&self) -> u32 {
        self.done.kills.load(Ordering::Acquire)
    }

    /// Returns why the sandbox was ended.
    pub(crate) fn ended(&self) -> Option<TooMany> {
        self.done.ended.get().copied()
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.set_busy(false);
        self.task.abort();
    }
}

async fn watch_descendants<F: Future<Output = Option<u32>>>(
    mut find: impl FnMut() -> F,
    allowed: Arc<Allowed>,
    mut busy: watch::Receiver<bool>,
    done: Arc<Done>,
) {
    let root = loop {
        if busy.wait_for(|busy| *busy).await.is_err() {
            return;
        }
        if let Some(root) = find().await {
            break root;
        }
        // The sandbox may have ended together with its code.
        if *busy.borrow() {
            tracing::warn!(
                "could not find the processes of a sandbox: its memory limit holds for each process alone"
            );
            return;
        }
    };
    let (mut slow, mut most, mut falling_from, mut is_blind) = (SLOW, 0, None, false);
    loop {
        let began = Instant::now();
        let checked = check_once(root, &allowed, falling_from, &done).await;
        // Out of descriptors, for example: the limit holds again as soon as there are some.
        if let Err(error) = &checked
            && !std::mem::replace(&mut is_blind, true)
        {
            tracing::warn!(%error, "could not look at the processes of a sandbox: its memory limit holds for each process alone");
        }
        is_blind &= checked.is_err();
        let nothing = || (Checked { used: most, killed: false, is_over: false }, Duration::ZERO);
        let (Checked { used, killed, is_over }, took) = checked.unwrap_or_else(|_| nothing());
        slow = if killed || used > most + GROWTH { SLOW } else { (slow * 2).min(SLOWEST) };
        most = used;
        falling_from = is_over.then_some(used);
        // One kill may not be enough, and others may still grow.
        let quick = if killed { QUICK } else { quick_pause(took) };
        loop {
            let pause = if *busy.borrow_and_update() { quick } else { quick.max(slow) };
            tokio::select! {
                () = tokio::time::sleep_until((began + pause).into()) => break,
                changed = busy.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Checks a sandbox once, and returns what the checks of all sandboxes at work take together.
async fn check_once(
    root: u32,
    allowed: &Arc<Allowed>,
    falling_from: Option<u64>,
    done: &Arc<Done>,
) -> io::Result<(Checked, Duration)> {
    // Half a pause old at most: a machine with one sandbox is read for each check.
    let table = ProcessTable::shared(|took| quick_pause(took) / 2).await?;
    let (reading, allowed, done) = (table.took(), Arc::clone(allowed), Arc::clone(done));
    let checked = spawn_blocking(move || {
        let began = Instant::now();
        let checked = check(root, &table, &allowed, falling_from, &done)?;
        Ok((checked, reading.max(began.elapsed() * watches_at_work())))
    });
    checked.await.map_err(io::Error::other)?
}

/// Returns the time from one check to the next while code runs, if checks take so long.
fn quick_pause(took: Duration) -> Duration {
    (took * SHARE_OF_TIME).clamp(QUICK, LONGEST_QUICK)
}

/// Returns how many sandboxes that are watched run code.
fn watches_at_work() -> u32 {
    AT_WORK.load(Ordering::Relaxed).max(1)
}

/// What a check has found.
struct Checked {
    /// At least the memory of all processes together and of watched files, in bytes.
    used: u64,
    killed: bool,
    /// Whether it was more than the limit.
    is_over: bool,
}

/// Adds up the memory of all descendants, and kills the largest when that is too much. `falling_from` is what the last check
/// found if that was too much: the sockets of processes that have ended take a moment to be free, and must not count against
/// the others.
fn check(
    root: u32,
    table: &ProcessTable,
    allowed: &Allowed,
    falling_from: Option<u64>,
    done: &Done,
) -> io::Result<Checked> {
    let processes = table.of_sandbox(root);
    let within = |used| Ok(Checked { used, killed: false, is_over: false });
    let Some(first) = processes.first() else { return within(0) };
    let of_files = match allowed.folders.memory(first.pid) {
        Ok(memory) => memory,
        Err(too_many) => {
            // Set first, so that whoever sees the end finds the reason.
            let reason = done.ended.get_or_init(|| too_many);
            tracing::info!(%reason, "ended a sandbox");
            // Its end is that of all others.
            kill(first, &done.kills);
            return Ok(Checked { used: 0, killed: true, is_over: false });
        }
    };
    let counted = allowed.counted;
    let limit = allowed.memory.saturating_add(ALLOWANCE);
    let most = most_of(&processes, first.pid, counted);
    if most <= limit {
        return within(most + of_files);
    }
    // Nothing is killed for what was so a moment ago.
    let processes = ProcessTable::read()?.of_sandbox(root);
    let Some(first) = processes.first() else { return within(0) };
    let (used, mut shares) = account(&processes, first.pid, counted);
    if used <= limit {
        return within(used);
    }
    if falling_from.is_some_and(|before| used < before) {
        return Ok(Checked { used, killed: false, is_over: true });
    }
    shares.sort_by_key(|(share, _)| *share);
    let (mut left, mut killed) = (used, Vec::new());
    // Nearly all may have grown since the last check.
    while left > limit
        && let Some((share, largest)) = shares.pop()
    {
        if let Some(process) = kill(largest, &done.kills) {
            killed.push(process);
            let pid = largest.pid;
            tracing::info!(
                pid,
                share,
                used,
                limit,
                "killed the largest process of a sandbox that uses more memory than its limit"
            );
        }
        left = left.saturating_sub(share);
    }
    // What they used is free when they have ended, and until then must not count against the others.
    let deadline = Instant::now() + ENDING;
    for process in &killed {
        process.ends_within(deadline.saturating_duration_since(Instant::now()));
    }
    Ok(Checked { used, killed: !killed.is_empty(), is_over: true })
}

fn kill(process: &Usage, kills: &AtomicU32) -> Option<Process> {
    let (pid, process) = (process.pid, process.open()?);
    // Counted first, so that whoever sees the end finds the reason.
    kills.fetch_add(1, Ordering::Release);
    let killed = process.kill();
    if let Err(error) = &killed {
        kills.fetch_sub(1, Ordering::Release);
        tracing::warn!(pid, %error, "a sandbox uses more memory than its limit, and its process could not be killed");
    }
    killed.is_ok().then_some(process)
}

/// Returns an upper bound that is quick to compute: shared pages count for each process, and each socket counts as full.
fn most_of(processes: &[Usage], first: u32, counted: Counted) -> u64 {
    // All processes of a sandbox share one network.
    let sockets = kernel::most_of_sockets(first).unwrap_or(0);
    let of_process = |process: &Usage| {
        let pipes = kernel::memory_of_pipes(kernel::descriptors(process.pid));
        process.resident + kernel::most_of_page_tables(process.reserved) + pipes
    };
    match counted {
        Counted::All => processes.iter().map(of_process).sum::<u64>() + sockets,
        Counted::NetworkSockets => sockets,
    }
}

/// Returns the memory of all processes together, and of each what its end would free. Sockets belong to whoever has descriptors,
/// because nothing tells an ordinary user whose they are.
fn account(processes: &[Usage], first: u32, counted: Counted) -> (u64, Vec<(u64, &Usage)>) {
    let network_only = counted == Counted::NetworkSockets;
    let sockets = kernel::sockets(first, network_only).unwrap_or(0);
    let descriptors: Vec<u64> = processes.iter().map(|process| kernel::descriptors(process.pid)).collect();
    let all = descriptors.iter().sum::<u64>().max(1);
    let mut used = sockets;
    let mut shares = Vec::new();
    for (process, descriptors) in processes.iter().zip(descriptors) {
        let mut own = 0;
        if !network_only {
            let Some(memory) = share_of(process.pid) else { continue };
            own = memory + kernel::page_tables(process.pid) + kernel::memory_of_pipes(descriptors);
        }
        used += own;
        let part = u128::from(sockets) * u128::from(descriptors) / u128::from(all);
        shares.push((own + u64::try_from(part).unwrap_or(u64::MAX), process));
    }
    (used, shares)
}

/// Returns the engine's monitor process of a container, whose descendants are all processes in it. `first` is the engine's id of
/// the first one: an engine in a pid namespace of its own has other ids than this process sees, and the same id may belong to
/// any process here.
pub(crate) fn find_monitor(container: &str, first: u32) -> Option<u32> {
    let keeps = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_monitor(&line, container.as_bytes()))
    };
    let parent = Usage::read(first).map(|first| first.parent).filter(keeps);
    parent.or_else(|| process::ids().ok()?.find(keeps))
}

/// Returns whether this is the command line of containerd's shim or of podman's conmon for a container, which both contain its
/// whole id: `containerd-shim-runc-v2 -namespace moby -id ID …`, `conmon --api-version 1 -c ID …`.
fn is_monitor(line: &[u8], container: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == 0);
    let program = words.next().unwrap_or_default();
    let name = program.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    (name.starts_with(b"containerd-shim") || name == b"conmon") && words.any(|word| word == container)
}

/// Returns the ids of the processes of the sandbox whose parent on this host is `root`, the first one first.
pub(crate) fn ids_of_sandbox(root: u32) -> io::Result<Vec<u32>> {
    Ok(ProcessTable::read()?.of_sandbox(root).iter().map(|process| process.pid).collect())
}

/// Returns the memory of a process in bytes, swap included. Shared pages count in part, and pages of files do not count, because
/// the kernel can reclaim them. None for a process that has ended, or that we may not read: <https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html>.
pub(crate) fn share_of(pid: u32) -> Option<u64> {
    parse_share(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn parse_share(text: &str) -> Option<u64> {
    let kilobytes = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let resident = match (kilobytes("Pss_Anon"), kilobytes("Pss_Shmem")) {
        (Some(anonymous), Some(shared)) => anonymous + shared,
        // Before Linux 5.3 there is only the sum.
        _ => kilobytes("Pss")?,
    };
    Some((resident + kilobytes("SwapPss").unwrap_or(0)) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_recognised_by_its_command_line() {
        let id = "4f1d".repeat(16);
        let is = |words: &[&str]| is_monitor(words.join("\0").as_bytes(), id.as_bytes());
        assert!(is(&["/usr/bin/containerd-shim-runc-v2", "-namespace", "moby", "-id", &id, "-address", "x"]));
        assert!(is(&["/usr/bin/conmon", "--api-version", "1", "-c", &id, "-u", &id]));
        assert!(!is(&["/usr/bin/conmon", "--api-version", "1", "-c", "another"]));
        assert!(!is(&["docker", "container", "inspect", &id]));
        assert!(!is_monitor(b"", b""));
        assert_eq!(find_monitor(&id, std::process::id()), None);
    }

    #[test]
    fn shared_pages_count_in_part() {
        let text = "55-7f ---p 0 00:00 0  [rollup]\nRss:  2000 kB\nPss:   181 kB\nSwapPss:   3 kB\n";
        assert_eq!(parse_share(text), Some(184 << 10));
        let text = format!("{text}Pss_Anon:  9 kB\nPss_File:  170 kB\nPss_Shmem:  2 kB\n");
        assert_eq!(parse_share(&text), Some(14 << 10));
        assert_eq!(parse_share(""), None);
        let own = std::hint::black_box(vec![1_u8; 8 << 20]);
        assert!(share_of(std::process::id()).is_some_and(|bytes| bytes > own.len() as u64));
    }

    #[tokio::test]
    async fn a_sandbox_is_searched_for_again_when_its_code_ended_before_it_was_found() {
        let allowed = Allowed { memory: 1 << 40, counted: Counted::All, folders: WatchedFolders::default() };
        let (asked, mut asking) = tokio::sync::mpsc::unbounded_channel();
        let answer = Arc::new(tokio::sync::Notify::new());
        let answers = Arc::clone(&answer);
        let watch = MemoryWatch::start(allowed, move || {
            let (asked, answers) = (asked.clone(), Arc::clone(&answers));
            async move {
                let _ = asked.send(());
                answers.notified().await;
                None
            }
        });
        for _ in 0..3 {
            watch.set_busy(true);
            asking.recv().await.unwrap();
            watch.set_busy(false);
            answer.notify_one();
            // The only other task of this thread takes the answer.
            tokio::task::yield_now().await;
        }
        // Not found while its code runs: the watch gives up.
        watch.set_busy(true);
        asking.recv().await.unwrap();
        answer.notify_one();
        assert_eq!(asking.recv().await, None);
    }
}
