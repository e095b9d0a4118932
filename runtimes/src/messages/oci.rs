//! What crun and runc say.

use crate::exec;
use crate::refusal::{Refusal, RootProblem};

/// Returns why crun or runc did not start a container. The messages, as captured:
///
/// - crun 1.8.1: ``cgroups in hybrid mode not supported, drop all controllers from cgroupv1 or unmount cgroupv2``
/// - crun 1.8.1: ``executable file `python3` not found in $PATH: No such file or directory``
/// - runc 1.1.5: ``exec: "python3": executable file not found in $PATH``
/// - runc 1.1.5: ``error setting rlimits for ready process: … operation not permitted``
/// - crun: ``setrlimit `RLIMIT_NOFILE`: Operation not permitted``
/// - in a container of podman, crun 1.8.1: ``mount `proc` to `proc`: Operation not permitted``, podman 4.3.1: ``crun: open
///   /proc/sys/net/ipv4/ping_group_range: Read-only file system``, runc 1.1.5: ``error mounting "proc" to rootfs at "/proc": …
///   operation not permitted``, ``unable to apply cgroup configuration: mkdir /sys/fs/cgroup/cpuset/…: read-only file system``
/// - in a container of docker, crun 1.8.1: ``create keyring `codebridge-…`: Operation not permitted``
/// - there as root without CAP_SYS_ADMIN, runc 1.1.5: ``nsexec-0[25]: failed to get container mount namespace: Permission denied``
/// - newuidmap 4.13: ``newuidmap: uid range [0-1) -> [100000-100001) not allowed``
/// - runc: ``nsexec-1[…]: failed to unshare user namespace: Operation not permitted``
pub(crate) fn parse_refusal(messages: &str) -> Option<Refusal> {
    let has = |needle: &str| messages.contains(needle);
    let message = || exec::tail(logged_errors(messages).unwrap_or(messages.into()).as_bytes());
    let denied = has("peration not permitted");
    let needs = ["mount `proc`", "mounting \"proc\"", "mounting \\\"proc\\\"", "create keyring"];
    let confined =
        (denied && needs.into_iter().any(has)) || (has("/proc/sys/") && has("ead-only file system"));
    if has("cgroups in hybrid mode not supported") {
        Some(Refusal::HybridCgroups)
    } else if confined {
        Some(Refusal::Confined { message: message() })
    } else if has("failed to get container mount namespace") {
        Some(Refusal::NoCapability { message: message() })
    } else if has("not found in $PATH") || has("exec: no command specified") {
        Some(Refusal::ProgramMissing { message: message() })
    } else if has("RLIMIT_") || has("setting rlimits") || has("error setting rlimit") {
        Some(Refusal::RlimitDenied { message: message() })
    } else if has("newuidmap") || has("newgidmap") || has("cannot find mappings for user") {
        Some(Refusal::NoSubuids { message: message() })
    } else if (has("unshare") || has("clone")) && denied {
        Some(Refusal::NoUserNamespaces { message: message() })
    } else if has("cgroup")
        && (has("ermission denied")
            || denied
            || has("ead-only file system")
            || has("creating cgroup directory"))
    {
        Some(Refusal::CgroupDenied { message: message() })
    } else if (has("rootfs") || has("mount ")) && has("ermission denied") {
        Some(Refusal::RootUnreachable { message: message(), problem: RootProblem::Unreadable })
    } else {
        None
    }
}

/// Returns the errors in runc's log, without the warnings beside them: ``time="…" level=error msg="runc run failed: exec:
/// \"python3\": executable file not found in $PATH"``
fn logged_errors(messages: &str) -> Option<String> {
    let is_error = |line: &&str| line.contains(" level=error msg=\"") || line.contains(" level=fatal msg=\"");
    let text = |line: &str| {
        let text = line.split_once(" msg=\"")?.1;
        Some(text.strip_suffix('"')?.replace("\\\"", "\""))
    };
    let errors: Option<Vec<String>> = messages.lines().filter(is_error).map(text).collect();
    errors.filter(|errors| !errors.is_empty()).map(|errors| errors.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_messages_are_understood() {
        let hybrid = "2026-01-01T00:00:00.000000Z: cgroups in hybrid mode not supported, drop all controllers from cgroupv1 or unmount cgroupv2";
        assert_eq!(parse_refusal(hybrid), Some(Refusal::HybridCgroups));
        let missing = [
            "executable file `python3` not found in $PATH: No such file or directory",
            "time=\"x\" level=error msg=\"runc run failed: unable to start container process: exec: \\\"python3\\\": executable file not found in $PATH\"",
        ];
        for text in missing {
            assert!(matches!(parse_refusal(text), Some(Refusal::ProgramMissing { .. })), "{text}");
        }
        let confined = [
            "newgidmap: couldn't open process setgroups: Permission denied\nmount `proc` to `proc`: Operation not permitted",
            "Error: OCI runtime error: crun: open /proc/sys/net/ipv4/ping_group_range: Read-only file system",
            "error during container init: error mounting \\\"proc\\\" to rootfs at \\\"/proc\\\": mount proc:/proc, flags: 0xe: operation not permitted",
            "create keyring `codebridge-62ee6b1237-2`: Operation not permitted",
        ];
        for text in confined {
            assert!(matches!(parse_refusal(text), Some(Refusal::Confined { .. })), "{text}");
        }
        let logged = "time=\"x\" level=warning msg=\"no oom count\" error=\"y\"\ntime=\"x\" level=error msg=\"runc run failed: mkdir \\\"/sys/fs/cgroup/x\\\": read-only file system\"";
        let message = "runc run failed: mkdir \"/sys/fs/cgroup/x\": read-only file system".into();
        assert_eq!(parse_refusal(logged), Some(Refusal::CgroupDenied { message }));
        let groups = "unable to apply cgroup configuration: mkdir /sys/fs/cgroup/cpuset/codebridge-d4c-4: read-only file system";
        assert!(matches!(parse_refusal(groups), Some(Refusal::CgroupDenied { .. })));
        let capability =
            "level=error msg=\"nsexec-0[25]: failed to get container mount namespace: Permission denied\"";
        assert!(matches!(parse_refusal(capability), Some(Refusal::NoCapability { .. })));
        assert_eq!(parse_refusal("something else"), None);
    }
}
