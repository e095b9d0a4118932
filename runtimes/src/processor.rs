//! The processor time that a sandbox has taken, as this host counts it: by its control group, else by its processes. And the
//! memory of these.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroup;
use crate::memory::{ids_of_sandbox, share_of};
use crate::owner::fields_after_command;

/// How the processor time and the memory of one sandbox are read.
#[derive(Debug, Clone)]
pub struct Meter {
    /// The process whose descendants are those of the sandbox.
    parent: u32,
    group: Option<Group>,
}

/// The file of a control group that has its processor time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Group {
    /// `cpu.stat` of version 2.
    Stat(PathBuf),
    /// `cpuacct.usage` of version 1, in nanoseconds.
    Usage(PathBuf),
}

impl Meter {
    /// Returns that of the sandbox whose first process is a child of `parent`; None if there is none on this host.
    pub(crate) fn below(parent: u32) -> Option<Self> {
        let first = *ids_of_sandbox(parent).ok()?.first()?;
        let groups = fs::read_to_string(format!("/proc/{first}/cgroup")).unwrap_or_default();
        let group = group_of(&groups, Path::new(cgroup::CGROUP_ROOT));
        let this = Self { parent, group: group.filter(|group| group.read().is_some()) };
        this.processor_time().map(|_| this)
    }

    /// Returns the memory of its processes in bytes; None if the sandbox is gone.
    pub fn memory(&self) -> Option<u64> {
        let processes = ids_of_sandbox(self.parent).ok().filter(|all| !all.is_empty())?;
        Some(processes.into_iter().filter_map(share_of).sum())
    }

    /// Returns the processor time; None if the sandbox is gone. Without a control group, what processes took counts as long as they run, and later
    /// if their parents wait for them.
    pub fn processor_time(&self) -> Option<Duration> {
        match &self.group {
            Some(group) => group.read(),
            None => {
                let processes = ids_of_sandbox(self.parent).ok().filter(|all| !all.is_empty())?;
                Some(processes.into_iter().filter_map(time_of).sum())
            }
        }
    }
}

impl Group {
    fn read(&self) -> Option<Duration> {
        match self {
            Self::Stat(file) => parse_stat(&fs::read_to_string(file).ok()?),
            Self::Usage(file) => {
                let nanoseconds = fs::read_to_string(file).ok()?.trim().parse().ok()?;
                Some(Duration::from_nanos(nanoseconds))
            }
        }
    }
}

/// Returns the file of the group of a process, from its `/proc/PID/cgroup`; None where the group may have others in it. The groups of
/// all runtimes are named by the sandbox or by the engine's id of it.
fn group_of(groups: &str, root: &Path) -> Option<Group> {
    let is_own = |path: &str| {
        let is_id = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        path.contains("codebridge-") || path.split(|c: char| !c.is_ascii_alphanumeric()).any(is_id)
    };
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let path = path.strip_prefix('/').filter(|path| is_own(path) && !path.contains(".."))?;
        match controllers {
            "" => Some(Group::Stat(root.join(path).join("cpu.stat"))).filter(Group::is_there),
            _ if controllers.split(',').any(|name| name == "cpuacct") => {
                Some(Group::Usage(root.join("cpuacct").join(path).join("cpuacct.usage")))
                    .filter(Group::is_there)
            }
            _ => None,
        }
    })
}

impl Group {
    fn is_there(&self) -> bool {
        let (Self::Stat(file) | Self::Usage(file)) = self;
        file.exists()
    }
}

/// Reads `cpu.stat`: `usage_usec 1234`.
fn parse_stat(text: &str) -> Option<Duration> {
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(usage.trim().parse().ok()?))
}

/// Returns the time of a process, and of its children that have ended.
fn time_of(pid: u32) -> Option<Duration> {
    parse_time(&fs::read(format!("/proc/{pid}/stat")).ok()?, rustix::param::clock_ticks_per_second())
}

/// Reads the fields 14 to 17 of `/proc/PID/stat`.
fn parse_time(stat: &[u8], ticks_per_second: u64) -> Option<Duration> {
    let times: Vec<u64> =
        fields_after_command(stat)?.skip(11).take(4).map_while(|it| it.parse().ok()).collect();
    let ticks: u64 = (times.len() == 4).then(|| times.iter().sum())?;
    Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_read() {
        let stat = b"7 (a) R) S 3 7 7 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 4711 9999 25";
        assert_eq!(parse_time(stat, 100), Some(Duration::from_secs(2)));
        assert_eq!(parse_time(b"7 (a) S 3", 100), None);
        let before = time_of(std::process::id()).unwrap();
        let began = std::time::Instant::now();
        while time_of(std::process::id()).unwrap() <= before {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn only_the_group_of_the_sandbox_counts() {
        let root = tempfile::tempdir().unwrap();
        let id = "4f1d".repeat(16);
        let make = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            file
        };
        let stat = make(&format!("a/libpod-{id}.scope/cpu.stat"), "usage_usec 1500000\nuser_usec 1\n");
        let usage = make("cpuacct/codebridge-1-2/cpuacct.usage", "2000000000\n");
        let group = |groups: &str| group_of(groups, root.path());
        let found = group(&format!("0::/a/libpod-{id}.scope\n")).unwrap();
        assert_eq!((found.clone(), found.read()), (Group::Stat(stat), Some(Duration::from_millis(1500))));
        let found = group("9:memory:/codebridge-1-2\n4:cpu,cpuacct:/codebridge-1-2\n0::/\n").unwrap();
        assert_eq!((found.clone(), found.read()), (Group::Usage(usage), Some(Duration::from_secs(2))));
        for shared in ["0::/user.slice/user-1000.slice\n", "0::/\n", "", "0::/../codebridge-1\n", "x"] {
            assert_eq!(group(shared), None, "{shared}");
        }
    }
}
