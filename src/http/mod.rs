//! MCP over HTTP, for many users of one bridge.
//!
//! This folder owns the listener and its connections. It decides who a client is (`credentials`, `oidc`) and gives each user a
//! workspace of its own (`users`); what a client may do there is decided by the layers below. Nobody is served without a
//! credential, except the paths that say whether the bridge works.
//!
//! ```text
//! serve       the life of a listener: start, changes of tokens, the end without a broken run
//! routes      paths; each request is checked in `guard`, gets its user, and its bounds in `body`
//! users       the users of now, each with a workspace and with one service for each credential
//! site        what pages of other layers on the same listener may use of it
//! ```

mod address;
mod body;
mod certificate;
mod connections;
mod cors;
mod credentials;
mod error;
mod guard;
mod known_tokens;
mod metrics;
mod oidc;
mod open_files;
mod record;
mod routes;
mod serve;
mod site;
mod speak;
mod tls;
mod users;

pub use address::Address;
pub use certificate::expiry_of;
pub use error::HttpError;
pub use guard::Refusal;
pub use oidc::Issuer;
pub use record::{Listening, gone_listeners, listeners};
pub use serve::{Audience, Options, serve};
pub use site::{Admitted, Presence, Site};
