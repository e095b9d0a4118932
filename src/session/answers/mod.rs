//! Answers what code in the sandbox asks.
//!
//! ```text
//! answerer (queue, order) ─▶ access (what the current run may do) ─▶ grant, packages, transfers, steps
//!                                calls, documentation (of all servers) ─▶ access
//! ```

mod access;
mod answerer;
mod calls;
mod documentation;
mod grant;
mod packages;
mod paused_time;
mod steps;
mod transfers;

pub(super) use access::{NewRun, ServerAccess};
pub(super) use answerer::{Answerer, QuestionFromGuest, answer_questions};
pub(super) use grant::{Grant, GrantError};
pub(super) use packages::SessionPackages;
pub(super) use transfers::{Transfers, TransfersGuard};
