//! What the operator allows the model's code to do: rules in a file, the first that matches decides.
//!
//! Everything here is pure or reads one file. It knows no servers and asks nobody: who calls it does what it decides.
//!
//! ```text
//! live (the file, read again when it changes) ─▶ file (TOML) ─▶ rules (which one decides) ─▶ arguments (conditions)
//! ```

mod approvals;
mod arguments;
mod budgets;
mod decimal;
mod error;
mod expectations;
mod file;
mod hidden;
mod live;
mod pins;
mod rules;
mod start;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use approvals::{Answer, Approvals, MOST_QUESTIONS, Standing, Subject, schema};
pub use arguments::read as read_arguments;
pub use budgets::{Budgets, RunUse, Spent, Turn};
pub use error::{Place, PolicyError};
pub use expectations::{Checked, Expectations};
pub use hidden::{Suspicion, escaped, suspicions};
pub use live::{Policy, Source};
pub use pins::{
    Difference, PinError, Pins, ShapeDigest, Shapes, ToolShape, Unaccepted, differences, unaccepted,
};
pub use rules::{Annotations, Caller, Denial, Effect, Kind, LOCAL, RuleName, Rules, ToolCall, Verdict};
pub use start::START;
