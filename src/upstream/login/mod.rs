//! Logins to remote servers with OAuth 2.1, as the authorization chapter of MCP has it. Tokens are in the workspace of the user who
//! logged in, and are sent to the server that they are for, and to nobody else.
//!
//! ```text
//! pending (a person logs in) ─▶ callback (the browser comes back)      bearer (requests of a connection)
//!        └─▶ provider (who logs people in for this server) ─▶ fetch         └─▶ grant (renewed at the provider)
//!                                                                           └─▶ store ─▶ keyring, files
//! ```
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization>

mod account;
mod bearer;
mod callback;
mod error;
mod fetch;
mod files;
mod grant;
mod keyring;
mod logins;
mod pending;
mod provider;
mod store;
mod target;
#[cfg(test)]
mod tests;

pub(super) use bearer::Bearer;
pub(super) use pending::is_safe;

pub use account::Account;
pub use error::LoginError;
pub use keyring::KeyringError;
pub use logins::Logins;
pub use pending::PendingLogin;
