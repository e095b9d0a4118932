//! The owner of a sandbox: the bridge process that started it, told apart from all processes of this and other machines.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// The bridge process behind a sandbox.
///
/// A process id alone may be reused, and means another process in another pid namespace or on another machine that shares the
/// engine; these fields together are unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The random id of the bridge's run.
    pub instance: String,
    pub pid: u32,
    /// The start time in clock ticks since boot, field 22 of `/proc/PID/stat`
    /// (<https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>); 0 where it is unknown.
    pub start_time: u64,
    /// The kernel's boot id; `-` where there is none or it could not be read.
    pub boot: String,
    /// The inode of the pid namespace of `pid`; 0 where it is unknown.
    pub pid_namespace: u64,
    /// The machine id, so that no bridge sweeps the sandboxes of another machine on a shared engine.
    pub machine: String,
    /// The host name: machines that are copies of one have the same machine id.
    #[serde(default)]
    pub host: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerState {
    Alive,
    /// The owner has ended, or its machine was rebooted.
    Dead,
    /// The owner is on another machine or in another pid namespace, so its sandboxes must not be touched.
    Elsewhere,
}

impl fmt::Display for OwnerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Stands for the boot id where there is none.
const NO_BOOT: &str = "-";
const LABEL_PREFIX: &str = "codebridge.";

impl Owner {
    /// Returns this process as the owner of an instance, whose id is up to 16 lower-case letters and digits.
    pub fn this_process(instance: String) -> Self {
        let pid = std::process::id();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            instance,
            pid,
            start_time: start_time(pid).unwrap_or(0),
            boot: read_line("/proc/sys/kernel/random/boot_id").unwrap_or_else(|| NO_BOOT.into()),
            pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()),
            machine: read_line("/etc/machine-id").unwrap_or_else(|| host.clone()),
            host,
        }
    }

    /// Returns whether the owner still runs, as far as this process can tell.
    pub fn state(&self) -> OwnerState {
        let me = Self::this_process(String::new());
        self.state_seen_by(&me, seen_start_time(self.pid), || is_hidden(self.pid))
    }

    fn state_seen_by(
        &self,
        me: &Self,
        start: io::Result<Option<u64>>,
        is_hidden: impl Fn() -> bool,
    ) -> OwnerState {
        if self.machine != me.machine {
            return OwnerState::Elsewhere;
        }
        // Without `/proc` this process cannot tell whether an owner that had it still runs.
        if me.boot == NO_BOOT && self.boot != NO_BOOT {
            return OwnerState::Elsewhere;
        }
        if self.boot != me.boot && self.boot != NO_BOOT {
            return if self.host == me.host { OwnerState::Dead } else { OwnerState::Elsewhere };
        }
        if self.pid_namespace != me.pid_namespace {
            return OwnerState::Elsewhere;
        }
        match start {
            // An owner that was out of descriptors when it recorded itself does not know its own.
            Ok(Some(start)) if start == self.start_time || self.start_time == 0 => OwnerState::Alive,
            Ok(None) if is_hidden() => OwnerState::Elsewhere,
            Ok(_) => OwnerState::Dead,
            // Out of descriptors, for example: nothing is known of the owner, so nothing of it may be removed.
            Err(_) => OwnerState::Elsewhere,
        }
    }

    /// Returns whether a record that it wrote at this time is from the current boot of this machine.
    pub(crate) fn is_of_this_boot(&self, written: SystemTime) -> bool {
        let me = Self::this_process(String::new());
        // Where boots have no id, the time decides. A record from the future was written just now, before the clock was set
        // back.
        let since_boot = written.elapsed().map_or(true, |age| age <= uptime());
        self.machine == me.machine && self.boot == me.boot && since_boot
    }

    /// Returns the labels for containers of this owner.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let Self { instance, pid, start_time, boot, pid_namespace, machine, host } = self;
        [
            ("instance", instance.clone()),
            ("owner-pid", pid.to_string()),
            ("owner-start", start_time.to_string()),
            ("owner-boot", boot.clone()),
            ("owner-pid-namespace", pid_namespace.to_string()),
            ("owner-machine", machine.clone()),
            ("owner-host", host.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (format!("{LABEL_PREFIX}{key}"), value))
        .collect()
    }

    /// Returns the labels as flags of podman and docker.
    pub(crate) fn label_flags(&self) -> impl Iterator<Item = String> {
        self.labels().into_iter().map(|(key, value)| format!("--label={key}={value}"))
    }

    /// Reads the owner from labels; None when one is missing or malformed.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let get = |key: &str| labels.get(&format!("{LABEL_PREFIX}{key}"));
        Some(Self {
            instance: get("instance")?.clone(),
            pid: get("owner-pid")?.parse().ok()?,
            start_time: get("owner-start")?.parse().ok()?,
            boot: get("owner-boot")?.clone(),
            pid_namespace: get("owner-pid-namespace")?.parse().ok()?,
            machine: get("owner-machine")?.clone(),
            host: get("owner-host")?.clone(),
        })
    }
}

/// The label by which engines are asked for our containers.
pub(crate) const INSTANCE_LABEL: &str = "codebridge.instance";

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string()).filter(|line| !line.is_empty())
}

/// Returns how long ago this machine was booted.
fn uptime() -> Duration {
    // On Linux the monotonic clock stands still while the machine sleeps.
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    Duration::from_secs(time.tv_sec.try_into().unwrap_or(0))
}

/// Returns whether a process id belongs to another user's process that `/proc` does not show: `hidepid` in
/// <https://man7.org/linux/man-pages/man5/proc.5.html>.
fn is_hidden(pid: u32) -> bool {
    let pid = pid.try_into().ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::PERM))
}

/// Returns the start time of a process in clock ticks since boot; None when there is no such process, or only its zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    seen_start_time(pid).ok()?
}

/// Likewise; an error when nothing is known of the process.
#[cfg(target_os = "linux")]
fn seen_start_time(pid: u32) -> io::Result<Option<u64>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_start_time(&stat)),
        // The second one: it has ended between opening and reading.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns 0 for a process that exists: without `/proc` nothing more is known.
#[cfg(not(target_os = "linux"))]
fn seen_start_time(pid: u32) -> io::Result<Option<u64>> {
    let pid = pid.try_into().ok().and_then(rustix::process::Pid::from_raw);
    Ok(pid.and_then(|pid| rustix::process::test_kill_process(pid).is_ok().then_some(0)))
}

/// Returns field 22 of `/proc/PID/stat`. A zombie counts as gone.
#[cfg(any(target_os = "linux", test))]
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let mut fields = fields_after_command(stat)?;
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Returns the fields of `/proc/PID/stat` from the third on (<https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>). The
/// second one, the command in parentheses, may contain anything.
pub(crate) fn fields_after_command(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let end = stat.iter().rposition(|&byte| byte == b')')? + 1;
    Some(str::from_utf8(&stat[end..]).ok()?.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_back_from_its_labels() {
        let owner = Owner::this_process("abc".into());
        assert_eq!(Owner::from_labels(&owner.labels()), Some(owner.clone()));
        let mut labels = owner.labels();
        labels.remove("codebridge.owner-boot");
        assert_eq!(Owner::from_labels(&labels), None);
    }

    #[test]
    fn this_process_is_alive_and_a_reused_pid_is_not() {
        let owner = Owner::this_process("abc".into());
        assert_eq!(owner.state(), OwnerState::Alive);
        assert_eq!(Owner { start_time: owner.start_time + 1, ..owner.clone() }.state(), OwnerState::Dead);
        let rebooted = Owner { boot: "other".into(), ..owner.clone() };
        assert_eq!(rebooted.state(), OwnerState::Dead);
        // A copy of this machine: its boots say nothing about processes here.
        assert_eq!(Owner { host: "copy".into(), ..rebooted }.state(), OwnerState::Elsewhere);
        assert_eq!(Owner { machine: "other".into(), ..owner.clone() }.state(), OwnerState::Elsewhere);
        assert_eq!(Owner { pid_namespace: 1, ..owner }.state(), OwnerState::Elsewhere);
    }

    #[test]
    fn an_owner_that_is_hidden_is_not_dead() {
        let owner = Owner::this_process("abc".into());
        let seen = |me: &Owner, start, hidden| owner.state_seen_by(me, Ok(start), || hidden);
        assert_eq!(seen(&owner, None, false), OwnerState::Dead);
        assert_eq!(seen(&owner, None, true), OwnerState::Elsewhere, "hidepid");
        let without_proc = Owner { boot: NO_BOOT.into(), pid_namespace: 0, start_time: 0, ..owner.clone() };
        assert_eq!(seen(&without_proc, None, false), OwnerState::Elsewhere);
        assert_eq!(seen(&owner, Some(owner.start_time), true), OwnerState::Alive);
        if !rustix::process::getuid().is_root() {
            assert!(is_hidden(1));
        }
        assert!(!is_hidden(std::process::id()));
    }

    #[test]
    fn an_owner_of_which_nothing_can_be_read_is_not_dead() {
        let owner = Owner::this_process("abc".into());
        let exhausted = || Err(io::Error::from(rustix::io::Errno::MFILE));
        assert_eq!(owner.state_seen_by(&owner, exhausted(), || false), OwnerState::Elsewhere);
        // It could not read this when it recorded itself.
        for unknown in
            [Owner { start_time: 0, ..owner.clone() }, Owner { boot: NO_BOOT.into(), ..owner.clone() }]
        {
            assert_eq!(unknown.state(), OwnerState::Alive);
            assert_eq!(unknown.state_seen_by(&owner, Ok(None), || false), OwnerState::Dead);
        }
        let reused = Owner { boot: NO_BOOT.into(), start_time: owner.start_time + 1, ..owner };
        assert_eq!(reused.state(), OwnerState::Dead);
    }

    #[test]
    fn a_command_name_with_parentheses_does_not_confuse_the_start_time() {
        let line = b"42 (a) b) (c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(parse_start_time(line), Some(987_654));
        let zombie = b"42 (a) Z 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(parse_start_time(zombie), None);
        assert_eq!(parse_start_time(b"garbage"), None);
    }
}
