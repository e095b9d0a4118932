//! The client's end of MCP: what servers send, and how it reaches whoever waits for it.
//!
//! `rmcp` matches answers to requests, but its types keep only what they know: an odd block, a large number or the
//! order of keys would be lost, and an answer that it cannot read would leave its caller waiting. So the results of
//! calls and the questions of servers pass by it, typed, and `rmcp` is told only that they have arrived:
//!
//! ```text
//! bytes ─▶ message (what was sent) ─▶ inbox ─▶ Expected (the caller's), Questions (the handler's), Notices
//!                                       └───▶ rmcp: ids and handshake
//! ```

mod answer;
mod envelope;
#[cfg(test)]
mod fuzz;
mod inbox;
mod initialize;
mod message;
mod questions;
mod unread;

pub use answer::ServerProgress;
pub(crate) use answer::{Answer, Expected};
pub(crate) use inbox::{Inbox, Notices, Unaccepted, is_reply};
pub(crate) use message::{Listening, LogData, is_message};
pub(crate) use questions::{Questions, RawQuestion};
pub(crate) use unread::{Unread, UnreadShare};
