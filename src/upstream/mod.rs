//! The user's MCP servers: where they are defined, how they are kept running, what they offer.
//!
//! This folder owns the server processes that it starts and the connections to remote servers. It knows nothing of
//! sandboxes. Its layers, each of which uses only those below it:
//!
//! ```text
//! facade                                          what the rest of the product calls
//! additions                                       servers that code wants to add
//! recording                                       what the audit log says of a call
//! docs, arguments, govern, export                 documentation of all servers; arguments checked, calls decided
//! registry                                        servers that others have published
//! pool                                            connections, calls, lists of tools
//! openapi                                         OpenAPI documents as servers
//! catalog                                         documentation of tools, on disk
//! unattended                                      runs that nobody has asked for
//! error, meaning, search                          which tools fit a query: by a sentence encoder, by words
//! naming                                          names for new servers
//! login                                           logins to remote servers
//! discovery                                       files ─▶ definitions
//! alias, called_by, credential, denied, events, offer, offer_contents, questions, raw_arguments, shell, tool_doc, written
//! ```

mod additions;
mod alias;
mod arguments;
mod called_by;
pub mod catalog;
mod credential;
mod denied;
pub mod discovery;
mod docs;
mod error;
mod events;
mod export;
mod facade;
#[cfg(test)]
mod fuzz;
mod govern;
mod http_client;
mod login;
pub mod meaning;
mod naming;
mod offer;
mod offer_contents;
mod openapi;
mod options;
mod person;
mod pool;
mod questions;
mod raw_arguments;
mod recorded;
mod recording;
pub mod registry;
pub mod search;
mod shell;
mod tool_doc;
mod unattended;
mod written;

pub use additions::{AddError, NewFrom, NewServer};
pub use alias::{alias, aliases};
pub use arguments::check_arguments;
pub use called_by::{CalledBy, CodeLine};
pub use credential::is_credential;
pub use denied::Denied;
pub use docs::{Known, LastFailure, Reason, Refreshed, Searched, ToTest, UnknownServer};
pub use error::{Remedy, UpstreamError};
pub use events::{Event, LogMessage};
pub use export::{Exported, export, has_credential};
pub use facade::Upstream;

pub use login::{Account, KeyringError, LoginError, Logins, PendingLogin};
pub use naming::{name_of_command, name_of_url, short_name};
pub use offer::{OfferList, OfferRequest};
pub use offer_contents::{ContentsError, resource_contents};
pub use options::{CallOptions, UnreadResults};
pub use pool::{CallOutcome, Limits, OfferPages, ResourceWatch, ServerState, Tool};
pub use questions::{
    Answering, Answers, Askers, CallerGuard, ClientId, NoAnswers, Offers, Question, Refusal,
};
pub use raw_arguments::{RawArguments, RawArgumentsError, range_in};
pub use recorded::{Recorded, RecordedCall};
pub use shell::{login_command, shell_word, trust_command};
pub use tool_doc::{About, DocKind, ToolDoc};
pub use unattended::Unattended;
pub use written::{WrittenError, written_arguments};

pub use crate::mcp::client::ServerProgress;
