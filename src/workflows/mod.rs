//! Workflows: runs of `codebridge workflow run`, whose finished steps are journaled on the host, so that a later run continues
//! after the last one.
//!
//! What a journal says of steps comes from a sandbox: its sizes are bounded, and its texts are shown as hostile ones are.

mod error;
mod journal;
mod line;
mod records;

pub use error::WorkflowError;
pub use journal::{Ending, Journal, Start};
pub use line::{LONGEST_RESULT, StepId};
pub use records::{RecordedStep, State, StepState, Workflow, Workflows};
