//! OpenAPI documents as servers: each operation is a tool, which the host calls over HTTP.
//!
//! To the rest of the product this is an MCP server, so that policy, approvals, audit, limits and cancellation hold as for
//! any other. Credentials are added last, and removed from whatever comes back.
//!
//! ```text
//! transport (MCP messages) ─▶ api ─▶ fetch (document, client) ─▶ hosts (which may be called)
//!                                 ─▶ operations ─▶ names, parameters, body, schema ─▶ document ─▶ yaml
//!                                 ─▶ request ─▶ style      ─▶ auth      ─▶ response, pages
//! ```

mod api;
mod auth;
mod body;
mod document;
mod fetch;
mod hosts;
mod media;
mod names;
mod operations;
mod pages;
mod parameters;
mod request;
mod response;
mod schema;
mod style;
mod transport;
mod yaml;

pub(super) use transport::OpenApiTransport;
