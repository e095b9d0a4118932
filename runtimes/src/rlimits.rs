//! The limits per process, some of which replace a control group where there is none.

use rustix::process::{Resource, getrlimit};

use crate::spec::SandboxSpec;

/// How much address space a process may reserve for each byte of its data limit: thread stacks, allocator arenas and libraries
/// reserve far more than they use, and shared mappings count here but not as data.
const ADDRESS_SPACE_FACTOR: u64 = 4;

/// The rlimits of one sandbox (<https://man7.org/linux/man-pages/man2/getrlimit.2.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rlimits {
    pub(crate) descriptors: u64,
    /// RLIMIT_DATA in bytes, when it replaces a control group. Not for runc: its first process in the sandbox is a Go program,
    /// which needs more memory than a small sandbox has.
    pub(crate) data: Option<u64>,
    /// RLIMIT_NPROC: at most our own hard limit, because engines would otherwise try to raise it. The pids limit is set later,
    /// see [`OwnLimits`].
    pub(crate) processes: Option<u64>,
}

/// Limits that the sandbox's program has to set on itself before it runs foreign code, where no control group holds them and
/// the runtime cannot set them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnLimits {
    /// RLIMIT_DATA in bytes, where the runtime cannot set it: see `Rlimits::data`.
    pub data: Option<u64>,
    /// RLIMIT_AS in bytes: neither engine has a flag for it, and runc does not start with a small one.
    pub address_space: Option<u64>,
    /// RLIMIT_NPROC. Inside the sandbox's user namespace it counts the sandbox's processes (since Linux 5.14). A runtime
    /// that sets it earlier, as crun does, is itself refused its next process when the user has that many elsewhere.
    pub processes: Option<u32>,
    /// RLIMIT_NOFILE, where the runtime has no way to set it.
    pub descriptors: Option<u64>,
}

impl OwnLimits {
    /// Returns the limits of a sandbox; `no_cgroup` when no control group holds memory and pids.
    pub(crate) fn of(spec: &SandboxSpec, no_cgroup: bool) -> Self {
        let limits = &spec.limits;
        Self {
            data: None,
            address_space: no_cgroup.then(|| limits.memory.saturating_mul(ADDRESS_SPACE_FACTOR)),
            processes: no_cgroup.then_some(limits.pids),
            descriptors: None,
        }
    }
}

/// Returns our own hard limit, or the maximum of this machine if that is less: podman lowers its own limit to that
/// number (<https://man7.org/linux/man-pages/man5/proc_sys_kernel.5.html>, `pid_max`) and cannot raise it again.
fn ceiling_of_processes() -> Option<u64> {
    let hard = getrlimit(Resource::Nproc).maximum;
    let machine =
        std::fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    hard.into_iter().chain(machine).min()
}

/// Returns the limits of a sandbox; `no_cgroup` when no control group holds memory and pids.
pub(crate) fn of(spec: &SandboxSpec, no_cgroup: bool) -> Rlimits {
    let limits = &spec.limits;
    let hard = getrlimit(Resource::Nofile).maximum;
    Rlimits {
        // Without CAP_SYS_RESOURCE a process cannot raise a limit above its own.
        descriptors: hard.map_or(limits.descriptors, |hard| limits.descriptors.min(hard)),
        data: no_cgroup.then_some(limits.memory),
        processes: ceiling_of_processes(),
    }
}
