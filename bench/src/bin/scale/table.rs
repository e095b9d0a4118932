//! The rows of the result, and times as they stand there.

use std::fmt::Write;
use std::time::Duration;

/// The rows of the result.
pub(crate) struct Table(pub(crate) String);

impl Table {
    pub(crate) fn row(&mut self, figure: &str, measured: &str, bound: &str) {
        let _ = writeln!(self.0, "| {figure} | {measured} | {bound} |");
    }
}

/// Returns the times at the middle and at the 99th of a hundred.
pub(crate) fn p50_p99(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.99))
}

pub(crate) fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
