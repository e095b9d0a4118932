//! The processes of this machine: their ids, and a handle on one that stays valid when its id is reused.

use std::fs;
use std::io;

pub(crate) use imp::Process;

/// Returns the ids of all processes that `/proc` shows.
pub(crate) fn ids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    /// A pidfd: <https://man7.org/linux/man-pages/man2/pidfd_open.2.html>.
    #[derive(Debug)]
    pub(crate) struct Process(OwnedFd);

    impl Process {
        /// Opens the process that has this id now. The caller has to check again after this that it is the right one.
        pub(crate) fn open(pid: Pid) -> Option<Self> {
            pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
        }

        /// Blocks until the process ends, up to this time. Returns whether it has ended.
        pub(crate) fn ends_within(&self, limit: Duration) -> bool {
            let limit =
                Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
            poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
        }

        pub(crate) fn kill(&self) -> io::Result<()> {
            Ok(pidfd_send_signal(&self.0, Signal::KILL)?)
        }
    }
}

/// Systems without local sandboxes: all processes are on other machines.
#[cfg(not(target_os = "linux"))]
mod imp {
    use std::convert::Infallible;
    use std::io;
    use std::time::Duration;

    use rustix::process::Pid;

    #[derive(Debug)]
    pub(crate) struct Process(Infallible);

    impl Process {
        pub(crate) fn open(_: Pid) -> Option<Self> {
            None
        }

        pub(crate) fn ends_within(&self, _: Duration) -> bool {
            match self.0 {}
        }

        pub(crate) fn kill(&self) -> io::Result<()> {
            match self.0 {}
        }
    }
}
