//! Transports to remote servers: streamable HTTP, and its predecessor with one stream of events.
//!
//! ```text
//! streamable (one POST a message) ─▶ sender ◀─ older (one stream down, POSTs up)
//!                                      ├─▶ client, the login
//!                                      └─▶ events (text/event-stream)
//! ```

mod client;
mod events;
mod older;
mod sender;
mod streamable;
mod turns;

pub(in crate::upstream) use client::{HttpError, client as http_client};
pub(super) use client::{http_error, message_of};
pub(super) use older::OlderTransport;
pub(super) use sender::Remote;
pub(super) use streamable::streamable;
