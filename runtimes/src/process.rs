//! A process that cannot be mistaken for another one of its number.

pub(crate) use imp::Process;

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    /// A handle: <https://man7.org/linux/man-pages/man2/pidfd_open.2.html>.
    #[derive(Debug)]
    pub(crate) struct Process(OwnedFd);

    impl Process {
        /// The process that has this number now. Whatever made the caller choose it has to be asked again after this.
        pub(crate) fn now(pid: Pid) -> Option<Self> {
            pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
        }

        /// Whether it ends within this time; blocks.
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

/// Where there are no sandboxes of this machine's own: their processes are all elsewhere.
#[cfg(not(target_os = "linux"))]
mod imp {
    use std::convert::Infallible;
    use std::io;
    use std::time::Duration;

    use rustix::process::Pid;

    #[derive(Debug)]
    pub(crate) struct Process(Infallible);

    impl Process {
        pub(crate) fn now(_: Pid) -> Option<Self> {
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
