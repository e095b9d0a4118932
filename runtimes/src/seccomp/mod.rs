//! The one seccomp profile of all four runtimes: an allow-list sized for CPython and the scientific stack.
//!
//! What is not listed fails with EPERM. Left out on purpose: io_uring, bpf, keyctl, ptrace and its relatives,
//! userfaultfd, mounts, namespaces, open_by_handle_at, perf, modules, kexec, clock setting, System V shared memory and
//! memfd (memory that outlives its mapping escapes the rlimit fallback), xattr writes and global sync.
//!
//! Format: <https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp>, which podman and docker
//! read as well. [`program`] is the same profile as a program for the kernel, for runtimes that take none.

mod bpf;

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const ENETUNREACH: u32 = 101;

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
    "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "shutdown",
];

/// AF_UNIX, AF_INET, AF_INET6: asyncio and multiprocessing need them, and the network namespace is empty.
/// Netlink, packet, vsock, alg and the rest reach the kernel or the host.
const SOCKET_FAMILIES: &[u64] = &[1, 2, 10];

/// Levels of setsockopt(2) besides the socket's own: IP, TCP, UDP, IPv6.
const SOCKET_LEVELS: &[u64] = &[0, 6, 17, 41];
const SOL_SOCKET: u64 = 1;
/// The options of that level that ordinary programs set, by their numbers in `asm-generic/socket.h`: addresses and ports (2, 15,
/// 25), delivery (5, 6, 9, 10, 12, 13, 18, 49), time limits (20, 21), and what is told with a message (16, 29, 35, 37, 40, 42).
/// Left out on purpose: filters, which are programs for the kernel.
const SOCKET_OPTIONS: &[u64] = &[2, 5, 6, 9, 10, 12, 13, 15, 16, 18, 20, 21, 25, 29, 35, 37, 40, 42, 49];
/// SO_SNDBUF and SO_RCVBUF: buffers keep their size, because an rlimit does not count what waits in them. A program is told that
/// it has succeeded, as when the kernel reduces a size that is above its maximum: <https://man7.org/linux/man-pages/man7/socket.7.html>.
const SOCKET_BUFFERS: &[u64] = &[7, 8];

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

/// What sandboxes can do with Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnixSockets {
    /// All of it: no socket of the host is within reach.
    Any,
    /// Pairs only, which have no names: a sandbox with the rights of a share's owner could connect to the sockets in the share.
    Pairs,
    /// All of it, and no other sockets: the sandbox is in a network that it must not use.
    Only,
}

/// The types of socket pairs that cannot send to a name: SOCK_STREAM and SOCK_SEQPACKET, without flags.
const CONNECTED: &[u64] = &[1, 5];
/// All bits of a socket's type but SOCK_CLOEXEC and SOCK_NONBLOCK.
const TYPE: u64 = !0o2_004_000;
const AF_UNIX: u64 = 1;

/// Builds the profile. System calls of another architecture (32-bit ones on a 64-bit machine) kill the process.
pub(crate) fn profile(unix: UnixSockets) -> Result<LinuxSeccomp, OciSpecError> {
    let mut rules = vec![allow([DESCRIPTORS, FILES, MEMORY, PROCESSES, TIME, SOCKETS].concat())?];
    for family in SOCKET_FAMILIES {
        if unix == UnixSockets::Only && *family != AF_UNIX {
            // As the kernel says it in an empty network.
            let refused =
                rule(&["socket"], vec![equal(0, *family)?]).action(LinuxSeccompAction::ScmpActErrno);
            rules.push(refused.errno_ret(ENETUNREACH).build()?);
            continue;
        }
        if (*family, unix) != (AF_UNIX, UnixSockets::Pairs) {
            rules.push(rule(&["socket", "socketpair"], vec![equal(0, *family)?]).build()?);
            continue;
        }
        for kind in CONNECTED {
            let arguments = vec![equal(0, *family)?, masked(1, TYPE, *kind)?];
            rules.push(rule(&["socketpair"], arguments).build()?);
        }
    }
    for level in SOCKET_LEVELS {
        rules.push(rule(&["setsockopt"], vec![equal(1, *level)?]).build()?);
    }
    for option in SOCKET_OPTIONS {
        rules.push(rule(&["setsockopt"], vec![equal(1, SOL_SOCKET)?, equal(2, *option)?]).build()?);
    }
    for option in SOCKET_BUFFERS {
        let arguments = vec![equal(1, SOL_SOCKET)?, equal(2, *option)?];
        let ignored = rule(&["setsockopt"], arguments).action(LinuxSeccompAction::ScmpActErrno);
        rules.push(ignored.errno_ret(0_u32).build()?);
    }
    for personality in PERSONALITIES {
        rules.push(rule(&["personality"], vec![equal(0, *personality)?]).build()?);
    }
    // None of the flags of namespaces.
    rules.push(rule(&["clone"], vec![masked(0, CLONE_NAMESPACES, 0)?]).build()?);
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

/// Returns the profile without a network as a program for the kernel, for both architectures.
///
/// # Errors
/// The profile is not valid.
pub(crate) fn program() -> Result<Vec<u8>, OciSpecError> {
    Ok(bpf::compile(&profile(UnixSockets::Only)?))
}

/// Returns the profile without a network as JSON, for the nodes of a cluster, whatever their architecture.
///
/// # Errors
/// The profile is not valid.
pub fn node_profile() -> Result<String, OciSpecError> {
    let mut profile = profile(UnixSockets::Only)?;
    profile.set_architectures(Some(vec![Arch::ScmpArchX86_64, Arch::ScmpArchAarch64]));
    Ok(serde_json::to_string(&profile)?)
}

fn allow(names: Vec<&str>) -> Result<LinuxSyscall, OciSpecError> {
    LinuxSyscallBuilder::default()
        .names(names.into_iter().map(String::from).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .build()
}

/// Returns a rule that allows calls with these arguments.
fn rule(names: &[&str], arguments: Vec<LinuxSeccompArg>) -> LinuxSyscallBuilder {
    LinuxSyscallBuilder::default()
        .names(names.iter().map(ToString::to_string).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .args(arguments)
}

/// Compares all 64 bits of an argument. The kernel reads fewer of some, so a call with others set is refused.
fn equal(index: usize, value: u64) -> Result<LinuxSeccompArg, OciSpecError> {
    LinuxSeccompArgBuilder::default().index(index).value(value).op(LinuxSeccompOperator::ScmpCmpEq).build()
}

/// Compares these bits of an argument.
fn masked(index: usize, bits: u64, value: u64) -> Result<LinuxSeccompArg, OciSpecError> {
    LinuxSeccompArgBuilder::default()
        .index(index)
        .value(bits)
        .value_two(value)
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_dangerous_is_on_the_list() {
        let text = serde_json::to_string(&profile(UnixSockets::Any).unwrap()).unwrap();
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
    fn the_size_of_socket_buffers_cannot_be_set() {
        // SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE; SO_ATTACH_FILTER, SO_ATTACH_BPF.
        for option in [7, 8, 32, 33, 26, 50] {
            assert!(!SOCKET_OPTIONS.contains(&option), "{option}");
        }
        let profile = profile(UnixSockets::Any).unwrap();
        let rules = profile.syscalls().iter().flatten();
        for rule in rules.filter(|rule| rule.names().iter().any(|name| name == "setsockopt")) {
            let arguments = rule.args().as_deref().unwrap();
            assert!(arguments.iter().all(|it| it.op() == LinuxSeccompOperator::ScmpCmpEq), "{rule:?}");
            let of_socket = arguments[0].index() == 1 && arguments[0].value() == SOL_SOCKET;
            let names_option = arguments.get(1).is_some_and(|option| option.index() == 2);
            assert_eq!(of_socket, names_option, "{rule:?}");
        }
    }

    #[test]
    fn with_pairs_only_no_socket_has_a_name() {
        let profile = profile(UnixSockets::Pairs).unwrap();
        let rules: Vec<_> = profile.syscalls().iter().flatten().collect();
        let of = |name: &str| rules.iter().filter(|rule| rule.names().iter().any(|it| it == name)).count();
        assert_eq!((of("socket"), of("socketpair")), (2, 4));
        let families: Vec<_> = rules
            .iter()
            .filter(|rule| rule.names().iter().any(|name| name == "socket"))
            .flat_map(|rule| rule.args().iter().flatten().map(LinuxSeccompArg::value))
            .collect();
        assert!(!families.contains(&AF_UNIX), "{families:?}");
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
