//! Runtimes' processes that outlive their sandbox: a `crun run` whose bridge was killed still tidies up when its sandbox is
//! gone, and one that hangs would do so for ever. They are known by the instance's folder on their command line.

use std::fs;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::state::Instance;

/// Whoever only tidies up is gone by then.
const GRACE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(5);

/// Waits for the end of an instance's stragglers, and kills those that stay; whether there were any.
pub(crate) async fn end(instance: &Instance) -> bool {
    // The guardian and others that look after the instance name the folder itself, its runtimes something in it.
    let mut mark = instance.path().as_os_str().as_encoded_bytes().to_vec();
    mark.push(b'/');
    let found = find(&mark);
    if found.is_empty() {
        return false;
    }
    let mut waited = Duration::ZERO;
    while waited < GRACE && found.iter().any(|straggler| !straggler.has_ended()) {
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    for straggler in found.iter().filter(|straggler| !straggler.has_ended()) {
        tracing::warn!(pid = straggler.pid.as_raw_nonzero(), "killed a runtime that outlived its sandbox");
        straggler.kill();
    }
    true
}

/// A process that cannot be mistaken for another one of its number.
struct Straggler {
    pid: Pid,
    process: std::os::fd::OwnedFd,
}

fn find(mark: &[u8]) -> Vec<Straggler> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter_map(|pid| Straggler::of(pid, mark)).collect()
}

impl Straggler {
    fn of(pid: Pid, mark: &[u8]) -> Option<Self> {
        if !names(pid, mark) {
            return None;
        }
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Asked again, now that the number cannot change hands unnoticed.
        (pid != rustix::process::getpid() && names(pid, mark)).then_some(Self { pid, process })
    }

    fn has_ended(&self) -> bool {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// With its helpers, where it leads a group as every child of a bridge does.
    fn kill(&self) {
        if getpgid(Some(self.pid)) == Ok(self.pid) {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// Whether a process has this on its command line.
fn names(pid: Pid, mark: &[u8]) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.windows(mark.len()).any(|part| part == mark)
}
