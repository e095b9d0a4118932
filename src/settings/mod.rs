//! What a user can set: environment variables and flags, first raw, then resolved, each with the reason for its value.
//!
//! The one table of settings is [`ALL`]; the code, the help texts and the documentation all follow it. Nothing here reads
//! the environment of the process: the environment is passed in, so that a test can pass another one.

mod error;
mod origin;
mod parse;
mod pod;
mod raw;
mod resolved;
mod shares;
mod values;
pub mod variables;

#[cfg(test)]
mod tests;

pub use error::{Expected, SettingError, SettingWarning};
pub use origin::{Origin, Setting};
pub use parse::parse_time;
pub use raw::{Environment, RawSettings};
pub use resolved::Settings;
pub use shares::{Share, ShareProblem};
pub use values::{AuditLevel, AuditMode, OutputMode};
pub use variables::{ALL, Commands, Variable};
