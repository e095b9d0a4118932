//! Sessions that come and go: nothing of them stays.

use std::io;
use std::time::{Duration, Instant};

use crate::bridge::Bridge;
use crate::options::Options;
use crate::table::Table;

/// Sessions, of these users in turn, and after how many the bridge is looked at. It keeps the last 200 runs of each user for the
/// console: the second half of the sessions finds these lists full.
const SESSIONS: usize = 1_000;
const USERS: usize = 2;
const LOOK: usize = 50;
/// Sandboxes that are removed after their session was answered.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) async fn measure(options: &Options, table: &mut Table) -> io::Result<()> {
    let bridge = Bridge::start(options, USERS, &[]).await?;
    let (mut memory, mut files) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for number in 1..=SESSIONS {
        let mut client = bridge.client(number).await?;
        client.open().await?;
        client.run("1", "new").await?;
        client.close().await?;
        drop(client);
        if number % LOOK == 0 {
            tokio::time::sleep(SETTLE).await;
            memory.push(bridge.memory());
            files.push(bridge.files() as f64);
        }
    }
    let each = began.elapsed().as_secs_f64() * 1e3 / SESSIONS as f64;
    table.row("a session opened, used and closed", &format!("{each:.0} ms"), "-");
    let half = memory.len() / 2;
    let text = |values: &[f64], unit: &str| {
        let slope = slope(&values[half..]) / LOOK as f64;
        let (first, last) = (values[half], values[values.len() - 1]);
        format!("{slope:+.2}{unit} a session ({first:.0} to {last:.0}{unit})")
    };
    let what = format!("over the last {} of {SESSIONS} sessions", SESSIONS / 2);
    table.row(&format!("memory of the bridge {what}"), &text(&memory, " KB"), "0");
    table.row(&format!("its descriptors {what}"), &text(&files, ""), "0");
    bridge.stop().await
}

/// The slope of the line that fits best, for each value.
fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / count;
    let of =
        |(at, value): (usize, &f64)| ((at as f64 - middle) * (value - mean), (at as f64 - middle).powi(2));
    let (up, across) =
        values.iter().enumerate().map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    up / across
}
