//! Which machine figures are of, and where they are kept.

use std::io;
use std::path::Path;

/// The head of a table: the date, what it is about, the machine and how busy it is.
pub fn header(about: &str) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("\t: unknown");
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "# {}{about}\n\nMachine: {count} x{}, Linux {}, load {}.\n\n",
        today(),
        model.trim_start_matches(['\t', ':']),
        kernel.trim(),
        load.split(' ').next().unwrap_or("?"),
    )
}

/// Writes a table to `bench/results/DATE.md`, or `DATE-ABOUT.md`, in place of an earlier one of the same day.
pub fn save(about: &str, table: &str) -> io::Result<()> {
    let folder = Path::new("bench/results");
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{}{about}.md", today())), table)
}

/// The date in UTC, `YYYY-MM-DD`.
fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}
