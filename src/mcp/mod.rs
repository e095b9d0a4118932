//! The Model Context Protocol between bytes and `rmcp`: lines, and messages that `rmcp` would lose or change.
//!
//! `rmcp` runs both ends of the protocol: handshake, request ids, sessions over HTTP. This module, which both ends share,
//! does what `rmcp` 3.9 does not:
//!
//! | `rmcp` 3.9 | here |
//! |---|---|
//! | drops a line that is too long or not valid JSON, and its caller waits for ever | the id is found in the bytes (`scan`); the request is answered, or the call fails |
//! | answers a message of the wrong shape without its id | the answer has the id (`server`) |
//! | drops a last line without a newline | it counts (`line`) |
//! | ends the service for a notification before `initialize` | it is ignored (`server`) |
//! | refuses `NaN`, half surrogate pairs, nesting beyond 127 levels | repaired (`repair`), or passed unread (`client`) |
//! | keeps of results only what its types know | the caller receives the text of the server (`client`) |
//! | drops the task that a call of 2025-11-25 wants to be, and has no capability for it | both are passed on (`server`) |
//! | starts requests in any order | calls start in the order of the client (`server`) |
//! | reads sockets, as Node-based clients use, on blocking threads | all streams are polled (`stdio`) |
//!
//! Nothing here knows a session or a server definition.

pub(crate) mod bounds;
pub(crate) mod client;
pub(crate) mod line;
pub(crate) mod repair;
pub(crate) mod scan;
pub(crate) mod server;
pub(crate) mod stdio;
