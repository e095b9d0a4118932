//! The server's end of MCP: the transport over lines, which reads what clients send.

mod message;
mod order;
mod transport;

pub(crate) use order::Turn;
pub(crate) use transport::LineTransport;
