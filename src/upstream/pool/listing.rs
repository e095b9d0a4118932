//! The tools of a server at one moment, and the listener for such lists.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::OnceCell;

use super::outcome::ToolList;
use crate::upstream::catalog::ServerDocs;
use crate::upstream::discovery::Definition;
use crate::upstream::tool_doc::{About, ToolDoc};

/// The tools of a server, and the definition that it was started by.
#[derive(Debug)]
pub(in crate::upstream) struct Listing {
    /// The file of the definition.
    pub(in crate::upstream) source: Arc<Path>,
    pub(in crate::upstream) definition: Arc<Definition>,
    pub(in crate::upstream) about: About,
    pub(in crate::upstream) tools: Arc<ToolList>,
    /// The documentation made of it, by the first that needs it.
    pub(in crate::upstream) docs: OnceCell<Arc<ServerDocs>>,
}

/// What a server offers beside tools, as documentation, and the definition that it was started by.
#[derive(Debug)]
pub(in crate::upstream) struct OfferedDocs {
    /// The file of the definition.
    pub(in crate::upstream) source: Arc<Path>,
    pub(in crate::upstream) definition: Arc<Definition>,
    pub(in crate::upstream) docs: Vec<ToolDoc>,
}

/// What a connection has listed beside tools.
#[derive(Debug, Default)]
pub(super) struct KnownOffers {
    /// How often the server had said by then that they have changed, and the documentation.
    pub(super) last: Mutex<Option<(u64, Arc<OfferedDocs>)>>,
    /// Held by the one caller that lists them.
    pub(super) asking: tokio::sync::Mutex<()>,
}

/// Receives every list of tools.
pub(in crate::upstream) trait Listener: fmt::Debug + Send + Sync {
    /// Takes a new list. It must not block: the caller that asked for the list is waiting.
    fn listed(self: Arc<Self>, listing: Arc<Listing>);

    /// Takes a new list of what a server offers beside tools, likewise.
    fn offered(self: Arc<Self>, offered: Arc<OfferedDocs>);
}

/// How new a list of tools has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Age<'a> {
    /// Listed since the server last announced a change.
    Current,
    /// With this tool, or listed since another one was not found either. Code may ask for any number of tools that do not
    /// exist.
    With(&'a str),
    /// Listed now.
    New,
}
