//! The table of figures, and what every measurement needs.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// A table of figures.
pub(crate) struct Table(pub(crate) String);

impl Table {
    pub(crate) fn row(&mut self, figure: &str, measured: &str, bound: &str) {
        self.0.push_str(&format!("| {figure} | {measured} | {bound} |\n"));
    }
}

/// A user who has servers like this one: how many, and with how many tools each.
pub(crate) fn home(servers: usize, tools: usize) -> io::Result<tempfile::TempDir> {
    let home = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let entry = |seed: usize| {
        let args = ["server".to_owned(), tools.to_string(), seed.to_string()];
        (format!("server-{seed}"), json!({ "command": program, "args": args }))
    };
    let all: Map<String, Value> = (0..servers).map(entry).collect();
    std::fs::create_dir(home.path().join("MCPs"))?;
    std::fs::write(home.path().join("MCPs/all.json"), json!({ "mcpServers": all }).to_string())?;
    Ok(home)
}

pub(crate) fn at(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part) as usize]
}

pub(crate) fn micros(time: Duration) -> String {
    format!("{:.0} µs", time.as_secs_f64() * 1e6)
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
