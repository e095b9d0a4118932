//! What somebody wants to do.

use tokio_util::sync::CancellationToken;

use crate::policy::Kind;
use crate::telemetry::Telemetry;
use crate::upstream::called_by::CalledBy;
use crate::upstream::discovery::Server;
use crate::upstream::offer::OfferRequest;
use crate::upstream::pool::{Tool, ToolList};
use crate::upstream::questions::Answers;
use crate::upstream::raw_arguments::RawArguments;

/// A call that somebody wants to make.
pub(in crate::upstream) struct WantedCall<'a> {
    pub(in crate::upstream) server: &'a Server,
    /// The name of the tool at its server.
    pub(in crate::upstream) tool: &'a str,
    /// None for a tool that its server does not list.
    pub(in crate::upstream) listed: Option<&'a Tool>,
    pub(in crate::upstream) tools: &'a ToolList,
    pub(in crate::upstream) arguments: &'a RawArguments,
    pub(in crate::upstream) by: &'a CalledBy,
    pub(in crate::upstream) answers: &'a dyn Answers,
    pub(in crate::upstream) cancel: &'a CancellationToken,
    pub(in crate::upstream) telemetry: &'a Telemetry,
}

/// A use of a resource or a prompt that somebody wants.
pub(in crate::upstream) struct WantedOffer<'a> {
    pub(in crate::upstream) server: &'a Server,
    pub(in crate::upstream) request: &'a OfferRequest,
    pub(in crate::upstream) by: &'a CalledBy,
    pub(in crate::upstream) answers: &'a dyn Answers,
    pub(in crate::upstream) cancel: &'a CancellationToken,
    pub(in crate::upstream) telemetry: &'a Telemetry,
}

/// Something else than a call of a tool that code wants.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct Wanted<'a> {
    pub(in crate::upstream) kind: Kind,
    pub(in crate::upstream) name: &'a str,
    pub(in crate::upstream) by: &'a CalledBy,
    pub(in crate::upstream) answers: &'a dyn Answers,
    pub(in crate::upstream) cancel: &'a CancellationToken,
    pub(in crate::upstream) telemetry: &'a Telemetry,
}
