//! All processes of this machine at one moment. Reading them takes milliseconds, so that all watches share what was read.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::kernel_memory::has_own_network;
use crate::owner::fields_after_command;
use crate::process::{self, Process};

/// Bytes of `/proc/PID/stat`: 52 numbers and a name of at most 64 bytes.
const LONGEST_STAT: usize = 2048;

/// The table that was read last.
static LAST: Mutex<Option<Arc<ProcessTable>>> = Mutex::const_new(None);

/// A process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// In ticks since boot; together with the id it identifies the process.
    started: u64,
    /// In bytes.
    pub(crate) resident: u64,
    /// The address space in bytes.
    pub(crate) reserved: u64,
}

impl Usage {
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let mut stat = [0; LONGEST_STAT];
        // The kernel writes all of it at once.
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut stat).ok()?;
        Self::parse(pid, &stat[..length])
    }

    /// Reads `/proc/PID/stat`.
    fn parse(pid: u32, stat: &[u8]) -> Option<Self> {
        let mut fields = fields_after_command(stat)?;
        // The first one is field 3.
        let parent = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        let reserved = fields.next()?.parse().ok()?;
        let pages: u64 = fields.next()?.parse().ok()?;
        let resident = pages.saturating_mul(rustix::param::page_size() as u64);
        Some(Self { pid, parent, started, resident, reserved })
    }

    /// Opens the process, if it is still there.
    pub(crate) fn open(&self) -> Option<Process> {
        let process = Process::open(Pid::from_raw(self.pid.try_into().ok()?)?)?;
        // Checked again, now that the id cannot be reused unnoticed.
        Self::read(self.pid).filter(|now| now.started == self.started).map(|_| process)
    }
}

/// All processes, by their parents.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    children: HashMap<u32, Vec<Usage>>,
    /// When reading them began, and how long it took.
    began: Instant,
    took: Duration,
}

impl ProcessTable {
    pub(crate) fn read() -> io::Result<Self> {
        let began = Instant::now();
        let mut children: HashMap<u32, Vec<Usage>> = HashMap::new();
        for process in process::ids()?.filter_map(Usage::read) {
            children.entry(process.parent).or_default().push(process);
        }
        Ok(Self { children, began, took: began.elapsed() })
    }

    /// Returns one that was read not longer ago than `longest` says, which gets the time that reading it took. Whoever needs
    /// another one meanwhile waits for the same.
    pub(crate) async fn shared(longest: impl Fn(Duration) -> Duration) -> io::Result<Arc<Self>> {
        let mut last = LAST.lock().await;
        if let Some(table) = last.as_ref().filter(|table| table.began.elapsed() <= longest(table.took)) {
            return Ok(Arc::clone(table));
        }
        let read = spawn_blocking(Self::read).await.map_err(io::Error::other)?;
        let table = Arc::new(read?);
        *last = Some(Arc::clone(&table));
        Ok(table)
    }

    /// How long reading it took.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Returns the processes of the sandbox whose parent on this host is `root`, the first one first. The parent may have other
    /// children, such as the command by which conmon removes a container: those are outside.
    pub(crate) fn of_sandbox(&self, root: u32) -> Vec<Usage> {
        let mut of_root = self.children.get(&root).into_iter().flatten();
        let Some(first) = of_root.find(|process| has_own_network(process.pid)) else { return Vec::new() };
        std::iter::once(first).chain(self.below(first.pid)).cloned().collect()
    }

    fn below(&self, root: u32) -> Vec<&Usage> {
        let mut found = Vec::new();
        let mut parents = vec![root];
        while let Some(parent) = parents.pop() {
            let before = found.len();
            found.extend(self.children.get(&parent).into_iter().flatten());
            parents.extend(found[before..].iter().map(|child: &&Usage| child.pid));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::exec::{self, CommandLine};

    #[test]
    fn a_process_with_any_name_is_read() {
        let stat =
            b"7 (a) R) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9999 25 18446744073709551615 1 1";
        let process = Usage::parse(7, stat).unwrap();
        let page = rustix::param::page_size() as u64;
        assert_eq!(process, Usage { pid: 7, parent: 3, started: 4711, resident: 25 * page, reserved: 9999 });
        assert_eq!(Usage::parse(7, b"7 (a) S 3"), None);
        let own = Usage::read(std::process::id()).unwrap();
        assert!(own.resident > 0 && own.open().is_some());
        assert!(Usage { started: own.started + 1, ..own }.open().is_none(), "another one with the same id");
    }

    #[test]
    fn only_descendants_count() {
        let mut children: HashMap<u32, Vec<Usage>> = HashMap::new();
        for (pid, parent) in [(2, 1), (3, 2), (4, 3), (5, 1), (6, 4), (7, 5), (8, 2)] {
            let process = Usage { pid, parent, started: 0, resident: 0, reserved: 0 };
            children.entry(parent).or_default().push(process);
        }
        let table = ProcessTable { children, began: Instant::now(), took: Duration::ZERO };
        let mut found: Vec<u32> = table.below(2).iter().map(|it| it.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4, 6, 8]);
    }

    #[tokio::test]
    async fn a_command_that_the_monitor_starts_outside_of_the_sandbox_does_not_count() {
        let sleep = exec::find_program(Path::new("sleep")).unwrap();
        let mut child = exec::spawn_piped(&CommandLine::new(sleep).arg("100")).unwrap();
        let own = std::process::id();
        let table = ProcessTable::read().unwrap();
        assert!(table.below(own).iter().any(|it| Some(it.pid) == child.id()));
        assert_eq!(table.of_sandbox(own), []);
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn all_share_a_table_until_it_is_too_old() {
        let mut table = ProcessTable::shared(|_| Duration::MAX).await.unwrap();
        let mut shares = false;
        // Other tests may read one in between.
        for _ in 0..100 {
            let next = ProcessTable::shared(|_| Duration::MAX).await.unwrap();
            shares |= Arc::ptr_eq(&table, &next);
            table = next;
        }
        assert!(shares);
        let newer = ProcessTable::shared(|_| Duration::ZERO).await.unwrap();
        assert!(newer.began > table.began);
    }
}
