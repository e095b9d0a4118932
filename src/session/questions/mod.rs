//! The questions that code in the sandbox asks the bridge, and what an answer is: types, read and written in one place.

mod answer;
mod name;
mod offers;
mod question;

pub(super) use answer::{Answer, QuestionError, ok, within_limit};
pub(super) use offers::{OfferUse, OffersWanted};
pub(super) use question::{
    ArtifactPart, Call, FailedStep, FinishedStep, GuestQuestion, InstallQuestion, MissingModule, NewArtifact,
    OneServer, OneTool, OutputPart, ReportedProgress, Search, ServerFilter, Step, ToolFilter, ToolSource,
    Transfer,
};
