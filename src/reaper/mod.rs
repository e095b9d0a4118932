//! One small process beside each bridge that removes what the bridge leaves behind when it is killed: the reaper.
//!
//! `client` is the bridge's end: it starts the process with the first sandbox or the first server, and says what exists.
//! `process` is the other end: it waits until its standard input ends, and then cleans up.

mod client;
mod process;

pub use client::Reaper;
pub use process::run;

/// The hidden subcommand that the process is started with.
pub const SUBCOMMAND: &str = "reaper";
