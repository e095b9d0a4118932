//! The server's end of MCP: the transport over lines, which reads what clients send.

#[cfg(test)]
mod fuzz;
mod message;
mod order;
mod parse;
mod task_call;
mod transport;
mod under_way;

pub(crate) use order::Turn;
pub(crate) use task_call::{TaskCall, announce, unread};
pub(crate) use transport::LineTransport;
