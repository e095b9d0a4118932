//! The Model Context Protocol as it arrives: lines, and messages that the `rmcp` library would lose or change.
//!
//! `rmcp` runs both ends of the protocol: handshake, request ids, sessions over HTTP. What it does not do is here, for
//! the server that we are (`server`) and for the servers whose client we are. Nothing here knows a session or a
//! definition.

pub(crate) mod client;
pub(crate) mod line;
pub(crate) mod repair;
pub(crate) mod scan;
pub(crate) mod server;
pub(crate) mod stdio;
