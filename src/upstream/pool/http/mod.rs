//! Transports to remote servers: streamable HTTP, and its predecessor with one stream of events.
//!
//! ```text
//! streamable (one POST a message) ─▶ client ◀─ older (one stream down, POSTs up)
//!                                      └─▶ events (text/event-stream)
//! ```

mod client;
mod events;
mod older;
mod streamable;
mod turns;

pub(super) use client::{HttpError, http_error, message_of};
pub(super) use older::OlderTransport;
pub(super) use streamable::streamable;
