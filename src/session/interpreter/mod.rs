//! Live interpreters: the pipes of their sandbox, one run at a time, and access to their files.

mod files;
mod guest;
mod live;
mod loss;
mod pipes;
mod run;
mod silence;
mod start_error;

pub(super) use files::Files;
pub(super) use guest::Guest;
pub(super) use live::{Interpreter, Startup};
pub(super) use run::{Budgets, Cell, FinishedRun};
pub(super) use start_error::StartError;
