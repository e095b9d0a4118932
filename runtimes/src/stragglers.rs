//! Processes of runtimes that outlive their sandbox: a `crun run` whose bridge was killed still cleans up when its sandbox is
//! gone, and may hang, as may a client whose connection breaks. They are found by the instance's folder or label on their
//! command line.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process_group};

use crate::owner::INSTANCE_LABEL;
use crate::process::{self, Process};
use crate::runtime::RuntimeKind;
use crate::state::Instance;

/// The time that a process has to clean up.
const GRACE: Duration = Duration::from_secs(1);
/// The time after which processes that cannot be killed are no longer waited for.
const LIMIT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);

/// Whether a runtime of an instance runs.
pub(crate) fn are_there(instance: &Instance) -> bool {
    !find(instance).is_empty()
}

/// Waits for the end of an instance's stragglers, and kills those that stay.
pub(crate) async fn end(instance: &Instance) {
    let started = Instant::now();
    // Repeated, because stragglers may have started others meanwhile.
    while started.elapsed() < LIMIT {
        let found = find(instance);
        if found.is_empty() {
            break;
        }
        while started.elapsed() < GRACE && found.iter().any(|straggler| !straggler.has_ended()) {
            tokio::time::sleep(STEP).await;
        }
        for straggler in found.iter().filter(|straggler| !straggler.has_ended()) {
            tracing::warn!(
                pid = straggler.pid.as_raw_nonzero(),
                "killed a runtime that outlived its sandbox"
            );
            straggler.kill();
        }
        tokio::time::sleep(STEP).await;
    }
}

struct Straggler {
    pid: Pid,
    process: Process,
}

fn find(instance: &Instance) -> Vec<Straggler> {
    // Its runtimes name something in the folder.
    let mut folder = instance.path().as_os_str().as_encoded_bytes().to_vec();
    folder.push(b'/');
    // The client of a remote engine names no path of this machine.
    let label = format!("--label={INSTANCE_LABEL}={}\0", instance.owner().instance);
    let marks = [folder.as_slice(), label.as_bytes()];
    let ids = process::ids().into_iter().flatten();
    let pids = ids.filter_map(|id| Pid::from_raw(id.try_into().ok()?));
    pids.filter_map(|pid| Straggler::of(pid, &marks)).collect()
}

impl Straggler {
    fn of(pid: Pid, marks: &[&[u8]]) -> Option<Self> {
        if !names(pid, marks) {
            return None;
        }
        let process = Process::open(pid)?;
        // Checked again, now that the process id cannot be reused unnoticed.
        (pid != rustix::process::getpid() && names(pid, marks)).then_some(Self { pid, process })
    }

    fn has_ended(&self) -> bool {
        self.process.ends_within(Duration::ZERO)
    }

    /// Kills it with its helpers, when it leads a process group as every child of a bridge does.
    fn kill(&self) {
        if getpgid(Some(self.pid)) == Ok(self.pid) {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = self.process.kill();
    }
}

/// Returns whether a process belongs to a runtime, by its name, and has one of these marks on its command line. The name of a
/// runtime that is a script follows its interpreter and the options of that.
fn names(pid: Pid, marks: &[&[u8]]) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let is_runtime = |word: &[u8]| {
        let name = word.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        RuntimeKind::of_program(&String::from_utf8_lossy(name)).is_some()
    };
    let has = |mark: &[u8]| line.windows(mark.len()).any(|part| part == mark);
    line.split(|&byte| byte == 0).take(3).any(is_runtime) && marks.iter().any(|mark| has(mark))
}
