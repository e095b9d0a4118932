//! Live interpreters: the pipes of their sandbox, one run at a time, and access to their files.

mod files;
mod live;
mod loss;
mod pipes;
mod run;

pub(super) use files::Files;
pub(super) use live::{Interpreter, StartError, Startup};
pub(super) use run::{Budgets, Cell, FinishedRun};
