//! What a server said of its tools at one moment, and who wants to hear of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::outcome::ToolList;
use crate::upstream::catalog::ServerDocs;
use crate::upstream::discovery::Definition;
use crate::upstream::tool_doc::About;

/// The tools of a server, and by which definition it is one.
#[derive(Debug)]
pub(in crate::upstream) struct Listing {
    /// The file that defines it.
    pub(in crate::upstream) source: Arc<Path>,
    /// How it is reached.
    pub(in crate::upstream) definition: Arc<Definition>,
    /// What it says of itself.
    pub(in crate::upstream) about: About,
    /// What it offers.
    pub(in crate::upstream) tools: Arc<ToolList>,
    /// The documentation that is made of it, by whoever needs it first.
    pub(in crate::upstream) docs: OnceCell<Arc<ServerDocs>>,
}

/// Hears of every list of tools that any server gives.
pub(in crate::upstream) trait Listener: fmt::Debug + Send + Sync {
    /// A list arrived. Whoever asked for it is not kept waiting by what is done about it.
    fn listed(self: Arc<Self>, listing: Arc<Listing>);
}

/// How new a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Age {
    /// As new as the server's last word that it has changed.
    Current,
    /// Asked for now.
    New,
}
