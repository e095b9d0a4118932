//! Finds the definitions of the user's MCP servers. Files are read on demand; the first definition of a name wins.
//!
//! Nothing here starts a server or reads the process environment: folders and variables are passed in. An unreadable file
//! or an invalid entry is a [`Warning`], and the rest loads. A file is read again when its metadata has changed.
//! Definitions in the working directory are used only with the user's approval (`trust`).
//!
//! ```text
//! sources (places) ─▶ document (JSON, TOML) ─▶ forms (entries) ─▶ expand, itself ─▶ snapshot
//! ```
//!
//! `changes` writes the user's own file of definitions; it has no part in reading.

mod changes;
mod definition;
mod document;
mod edit;
mod expand;
mod files;
mod forms;
#[cfg(test)]
mod fuzz;
mod http_options;
mod itself;
mod openapi;
mod openapi_form;
mod profiles;
mod public_url;
mod snapshot;
mod sources;
mod surroundings;
#[cfg(test)]
mod tests;
mod trust;
mod warning;
mod written;

pub(super) use itself::OWN_NAMES;

pub use changes::{ChangeError, is_name};
pub use definition::{Definition, Launch, Proposal, Server, Skip, Source};
pub use document::JSON_WITH_COMMENTS;
pub use edit::EditProblem;
pub use http_options::{HttpOptions, OAuthOptions, Redirect};
pub use itself::own_arguments;
pub use openapi::{Auth, DocumentPlace, OpenApi};
pub use profiles::UnknownProfile;
pub use snapshot::{Discovery, Snapshot};
pub use sources::user_files;
pub use surroundings::{Surroundings, User};
pub use trust::{TrustError, in_ascii};
pub use warning::{Warning, WarningKind};
pub use written::Written;
