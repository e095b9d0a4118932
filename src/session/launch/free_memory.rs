//! Whether memory of this machine is short.

/// Less than this is short on any machine, and less than [`PART`] of its memory on a small one.
const LEAST: u64 = 512 << 20;
const PART: u64 = 16;

/// Returns whether this machine has little memory left; false where that is unknown.
pub(super) fn is_short() -> bool {
    std::fs::read_to_string("/proc/meminfo").is_ok_and(|text| is_short_in(&text))
}

/// Reads <https://man7.org/linux/man-pages/man5/proc_meminfo.5.html>.
fn is_short_in(text: &str) -> bool {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let known = bytes("MemTotal").zip(bytes("MemAvailable"));
    known.is_some_and(|(total, available)| available < LEAST.min(total / PART))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_below_a_part_of_it_or_a_fixed_size() {
        let of = |total: u64, available: u64| {
            format!(
                "MemTotal:  {total} kB\nMemFree:  1 kB\nMemAvailable:   {available} kB\nSwapTotal: 0 kB\n"
            )
        };
        assert!(is_short_in(&of(2 << 20, 100 << 10)) && !is_short_in(&of(2 << 20, 200 << 10)));
        assert!(is_short_in(&of(64 << 20, 500 << 10)) && !is_short_in(&of(64 << 20, 600 << 10)));
        for unknown in ["", "MemAvailable: 1 kB", "MemTotal: 5 kB\nMemAvailable: x kB"] {
            assert!(!is_short_in(unknown), "{unknown}");
        }
    }
}
