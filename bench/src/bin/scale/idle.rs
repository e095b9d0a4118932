//! What sessions take that do nothing.

use std::io;
use std::time::Duration;

use crate::bridge::Bridge;
use crate::options::Options;
use crate::table::Table;

/// Sessions of the protocol without an interpreter, and the users who have them.
const OPEN: usize = 1_000;
const USERS: usize = 5;
/// After this the allocator has given back what it gives back.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(options: &Options, table: &mut Table) -> io::Result<()> {
    let bridge = Bridge::start(options, USERS, &[]).await?;
    let mut clients = Vec::new();
    // What the first of each user makes is not of a session.
    for user in 0..USERS {
        let mut client = bridge.client(user).await?;
        client.open().await?;
        clients.push(client);
    }
    tokio::time::sleep(SETTLE).await;
    let before = bridge.memory();
    for number in 0..OPEN {
        let mut client = bridge.client(number).await?;
        client.open().await?;
        clients.push(client);
    }
    tokio::time::sleep(SETTLE).await;
    let each = (bridge.memory() - before) / OPEN as f64;
    table.row("a session of the protocol with its connection", &format!("{each:.0} KB"), "-");
    drop(clients);
    bridge.stop().await?;
    interpreters(options, table, 1, "sessions of one user").await?;
    interpreters(options, table, options.clients, "users with a session each").await
}

/// Measures interpreters that have run something, of so many users.
async fn interpreters(options: &Options, table: &mut Table, users: usize, what: &str) -> io::Result<()> {
    let count = options.clients;
    let (most, runs) = ((count + 1).to_string(), (count + 1).to_string());
    let bridge = Bridge::start(options, users, &["--max-sessions", &most, "--max-runs", &runs]).await?;
    let mut first = bridge.client(0).await?;
    first.open().await?;
    first.run("1", "first").await?;
    tokio::time::sleep(SETTLE).await;
    let (before, below, files) = (bridge.memory(), bridge.memory_below(), bridge.files());
    let mut clients = Vec::new();
    for number in 0..count {
        let mut client = bridge.client(number).await?;
        client.open().await?;
        client.run("1", &format!("s{number}")).await?;
        client.run("2", &format!("s{number}")).await?;
        clients.push(client);
    }
    // Answers are kept for a minute, for clients that lost their connection.
    tokio::time::sleep(SETTLE).await;
    let share = |now: f64, before: f64| (now - before) / count as f64;
    let each = share(bridge.memory(), before);
    table.row(&format!("the bridge, for each of {count} {what}"), &format!("{each:.0} KB"), "<= 200 KB");
    let sandbox = share(bridge.memory_below(), below) / 1000.0;
    table.row(&format!("a sandbox of {count} {what}"), &format!("{sandbox:.1} MB"), "5.8 MB");
    let files = share(bridge.files() as f64, files as f64);
    table.row(&format!("descriptors of the bridge for each of {count} {what}"), &format!("{files:.1}"), "-");
    drop(clients);
    bridge.stop().await
}
