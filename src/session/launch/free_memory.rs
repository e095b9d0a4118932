//! Whether memory is short: that of this machine, or what the control groups of this process allow.

use std::fs;
use std::path::Path;

/// Less than this is short on any machine, and less than [`PART`] of its memory on a small one.
const LEAST: u64 = 512 << 20;
const PART: u64 = 16;

/// How much memory there is, and how much of it can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    fn is_short(self) -> bool {
        self.available < LEAST.min(self.total / PART)
    }
}

/// The files of a control group that say how much memory it has.
struct GroupFiles {
    /// Where the groups are.
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the part that the kernel gives back before memory is short.
    cache: &'static str,
}

/// <https://docs.kernel.org/admin-guide/cgroup-v2.html>
const V2: GroupFiles = GroupFiles {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file ",
};
/// <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>
const V1: GroupFiles = GroupFiles {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};

/// Returns whether there is little memory left; false where that is unknown.
pub(super) fn is_short() -> bool {
    is_short_below(Path::new("/"))
}

fn is_short_below(root: &Path) -> bool {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let of_machine = parse_meminfo(&read("proc/meminfo"));
    of_machine.is_some_and(Memory::is_short) || is_a_group_short(root, &read("proc/self/cgroup"))
}

/// Reads <https://man7.org/linux/man-pages/man5/proc_meminfo.5.html>.
fn parse_meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: bytes("MemTotal")?, available: bytes("MemAvailable")? })
}

/// Whether a group of this process is short, or one above it. `groups` is <https://man7.org/linux/man-pages/man7/cgroups.7.html>,
/// `/proc/[pid]/cgroup`. In a container those above are hidden, and its own one may be where the mount is.
fn is_a_group_short(root: &Path, groups: &str) -> bool {
    groups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return false };
        let files = match controllers {
            "" => V2,
            _ if controllers.split(',').any(|controller| controller == "memory") => V1,
            _ => return false,
        };
        let own = Path::new(path.trim_start_matches('/'));
        own.ancestors()
            .any(|group| files.read(&root.join(files.mount).join(group)).is_some_and(Memory::is_short))
    })
}

impl GroupFiles {
    /// Returns the memory of a group; None if it has no limit.
    fn read(&self, group: &Path) -> Option<Memory> {
        let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let total = number(self.limit)?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cache = stat.lines().find_map(|line| line.strip_prefix(self.cache)?.parse::<u64>().ok());
        let used = number(self.used)?.saturating_sub(cache.unwrap_or(0));
        Some(Memory { total, available: total.saturating_sub(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meminfo(total: u64, available: u64) -> String {
        format!("MemTotal:  {total} kB\nMemFree:  1 kB\nMemAvailable:   {available} kB\nSwapTotal: 0 kB\n")
    }

    #[test]
    fn memory_is_short_below_a_part_of_it_or_a_fixed_size() {
        let is_short = |total, available| parse_meminfo(&meminfo(total, available)).unwrap().is_short();
        assert!(is_short(2 << 20, 100 << 10) && !is_short(2 << 20, 200 << 10));
        assert!(is_short(64 << 20, 500 << 10) && !is_short(64 << 20, 600 << 10));
        for unknown in ["", "MemAvailable: 1 kB", "MemTotal: 5 kB\nMemAvailable: x kB"] {
            assert_eq!(parse_meminfo(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_limit_of_a_control_group_counts_as_the_memory_of_a_small_machine() {
        let (mib, unlimited) = (|mib: u64| (mib << 20).to_string(), "9223372036854771712");
        for (groups, folder, files, limit) in [
            ("0::/a/b\n", "a/b", V2, mib(512)),
            // A service whose slice has the limit.
            ("0::/a/b\n", "a", V2, mib(512)),
            // A container.
            ("0::/\n", "", V2, mib(512)),
            ("5:cpu:/x\n4:memory:/a/b\n0::/\n", "a/b", V1, mib(512)),
            ("4:hugetlb,memory:/docker/0123\n", "", V1, mib(512)),
            ("0::/a\n", "a", V2, "max".into()),
            ("4:memory:/a\n", "a", V1, unlimited.into()),
        ] {
            let root = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            let group = format!("{}/{folder}", files.mount);
            write("proc/meminfo", &meminfo(64 << 20, 32 << 20));
            write("proc/self/cgroup", groups);
            write(&format!("{group}/{}", files.limit), &format!("{limit}\n"));
            for (used, is_full) in [(400, false), (490, true)] {
                write(&format!("{group}/{}", files.used), &mib(used));
                assert_eq!(is_short_below(root.path()), is_full && limit == mib(512), "{groups}{used}");
            }
            // Files that were read count as used until the memory is needed.
            write(&format!("{group}/memory.stat"), &format!("anon 1\n{}{}\n", files.cache, mib(100)));
            assert!(!is_short_below(root.path()), "{groups}");
        }
    }
}
