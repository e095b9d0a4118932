//! Runs that go on while nobody waits for them. Calls look at them by their number.
//!
//! ```text
//! runs (all of a workspace) ─▶ run (one: what is new since the last look) ─▶ questions (wait for a look) , record (on disk)
//! ```

mod bounds;
mod questions;
mod record;
mod run;
mod runs;
mod unseen;

pub(super) use bounds::Bounds;
pub use record::{RecordedRun, RecordedState, Records};
pub(super) use run::{BackgroundRun, WaitsFor};
pub(super) use runs::BackgroundRuns;
