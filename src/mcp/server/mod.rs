//! The server's end of MCP: what clients send, and how it is read.

mod message;
mod order;
mod transport;

pub(crate) use order::Turn;
pub(crate) use transport::LineTransport;
