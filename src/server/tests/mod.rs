//! The server as a client sees it: lines in, lines out, with sessions that do what the test says.

mod calls;
mod client;
mod ending;
mod eras;
mod garbage;
mod listings;
mod tasks;
