//! The one seccomp profile of all four runtimes: an allow-list sized for CPython and the scientific stack.
//!
//! What is not listed fails with EPERM. Left out on purpose: io_uring, bpf, keyctl, ptrace and its relatives,
//! userfaultfd, mounts, namespaces, open_by_handle_at, perf, modules, kexec, clock setting, System V shared memory and
//! memfd (memory that outlives its mapping escapes the rlimit fallback), xattr writes and global sync.
//!
//! Format: <https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp>, which podman and docker
//! read as well.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Namespace flags of clone(2): <https://man7.org/linux/man-pages/man2/clone.2.html>.
const CLONE_NAMESPACES: u64 = 0x7e02_0000;

const DESCRIPTORS: &[&str] = &[
    "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3", "epoll_create",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
    "fadvise64", "fallocate", "fcntl", "fdatasync", "flock", "fsync", "ftruncate", "inotify_add_watch",
    "inotify_init", "inotify_init1", "inotify_rm_watch", "ioctl", "lseek", "open", "openat", "openat2",
    "pipe", "pipe2", "poll", "ppoll", "pread64", "preadv", "preadv2", "pselect6", "pwrite64", "pwritev",
    "pwritev2", "read", "readahead", "readv", "select", "sendfile", "signalfd", "signalfd4", "splice",
    "sync_file_range", "tee", "timerfd_create", "timerfd_gettime", "timerfd_settime", "truncate", "vmsplice",
    "write", "writev",
];

const FILES: &[&str] = &[
    "access", "chdir", "chmod", "chown", "faccessat", "faccessat2", "fchdir", "fchmod", "fchmodat",
    "fchmodat2", "fchown", "fchownat", "fgetxattr", "flistxattr", "fstat", "fstatfs", "futimesat", "getcwd",
    "getdents", "getdents64", "getxattr", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr",
    "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "readlink", "readlinkat", "rename",
    "renameat", "renameat2", "rmdir", "stat", "statfs", "statx", "symlink", "symlinkat", "umask", "unlink",
    "unlinkat", "utime", "utimensat", "utimes",
];

const MEMORY: &[&str] = &[
    "brk", "get_mempolicy", "madvise", "membarrier", "mincore", "mlock", "mlock2", "mlockall", "mmap",
    "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
    "pkey_mprotect",
];

const PROCESSES: &[&str] = &[
    "arch_prctl", "capget", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_requeue",
    "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "getcpu", "getegid", "geteuid", "getgid",
    "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid",
    "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get", "kill", "pidfd_open",
    "pidfd_send_signal", "prctl", "prlimit64", "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending",
    "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
    "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "set_robust_list",
    "set_tid_address", "setpgid", "setpriority", "setrlimit", "setsid", "sigaltstack", "sysinfo", "tgkill",
    "times", "tkill", "uname", "vfork", "wait4", "waitid",
];

const TIME: &[&str] = &[
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday", "nanosleep",
    "pause", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
    "timer_settime",
];

const SOCKETS: &[&str] = &[
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
    "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
];

/// AF_UNIX, AF_INET, AF_INET6: asyncio and multiprocessing need them, and the network namespace is empty.
/// Netlink, packet, vsock, alg and the rest reach the kernel or the host.
const SOCKET_FAMILIES: &[u64] = &[1, 2, 10];

/// The execution domains that libc uses: Linux itself, and the query.
const PERSONALITIES: &[u64] = &[0, 0xffff_ffff];

/// Returns the architecture of the profile; None where there is no profile for it.
fn native_architecture() -> Option<Arch> {
    if cfg!(target_arch = "x86_64") {
        Some(Arch::ScmpArchX86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Arch::ScmpArchAarch64)
    } else {
        None
    }
}

/// Builds the profile. System calls of another architecture (32-bit ones on a 64-bit machine) kill the process.
pub(crate) fn profile() -> Result<LinuxSeccomp, OciSpecError> {
    let mut rules = vec![allow([DESCRIPTORS, FILES, MEMORY, PROCESSES, TIME, SOCKETS].concat())?];
    for family in SOCKET_FAMILIES {
        rules.push(allow_when(&["socket", "socketpair"], *family, None)?);
    }
    for personality in PERSONALITIES {
        rules.push(allow_when(&["personality"], *personality, None)?);
    }
    rules.push(allow_when(&["clone"], CLONE_NAMESPACES, Some(0))?);
    // libc falls back to clone(2), whose flags can be checked, only when clone3 does not exist.
    rules.push(
        LinuxSyscallBuilder::default()
            .names(vec!["clone3".to_string()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .errno_ret(ENOSYS)
            .build()?,
    );
    let mut profile = LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(EPERM)
        .syscalls(rules);
    if let Some(architecture) = native_architecture() {
        profile = profile.architectures(vec![architecture]);
    }
    profile.build()
}

fn allow(names: Vec<&str>) -> Result<LinuxSyscall, OciSpecError> {
    LinuxSyscallBuilder::default()
        .names(names.into_iter().map(String::from).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .build()
}

/// Allows calls whose first argument is `value`; with `masked`, whose bits under the mask `value` are `masked`.
fn allow_when(names: &[&str], value: u64, masked: Option<u64>) -> Result<LinuxSyscall, OciSpecError> {
    let mut arg = LinuxSeccompArgBuilder::default().index(0usize).value(value);
    arg = match masked {
        Some(bits) => arg.value_two(bits).op(LinuxSeccompOperator::ScmpCmpMaskedEq),
        None => arg.op(LinuxSeccompOperator::ScmpCmpEq),
    };
    LinuxSyscallBuilder::default()
        .names(names.iter().map(ToString::to_string).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .args(vec![arg.build()?])
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_dangerous_is_on_the_list() {
        let text = serde_json::to_string(&profile().unwrap()).unwrap();
        for name in [
            "io_uring_setup", "bpf", "keyctl", "add_key", "request_key", "ptrace", "process_vm_readv",
            "userfaultfd", "mount", "umount2", "fsopen", "open_tree", "move_mount", "pivot_root", "chroot",
            "unshare", "setns", "open_by_handle_at", "name_to_handle_at", "perf_event_open", "init_module",
            "finit_module", "kexec_load", "clock_settime", "clock_adjtime", "adjtimex", "settimeofday",
            "reboot", "swapon", "quotactl", "shmget", "memfd_create", "memfd_secret", "pidfd_getfd", "kcmp",
            "syslog", "acct", "iopl", "ioperm", "setuid",
        ] {
            assert!(!text.contains(&format!("\"{name}\"")), "{name} is allowed");
        }
    }

    #[test]
    fn no_system_call_is_listed_twice() {
        let mut all: Vec<_> = [DESCRIPTORS, FILES, MEMORY, PROCESSES, TIME, SOCKETS].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
