//! What a user can set: environment variables and flags, first raw, then resolved, each with why it has its value.
//!
//! The room owns the one table of variables ([`ALL`]); the code, the help texts and the README are all held to
//! it. Nothing here reads the process environment: it is handed in, so that a test can hand in another one.

mod error;
mod origin;
mod parse;
mod raw;
mod resolved;
mod values;
pub mod variables;

#[cfg(test)]
mod tests;

pub use error::{Expected, SettingError};
pub use origin::{Origin, Setting};
pub use raw::{Environment, RawSettings};
pub use resolved::Settings;
pub use values::{ImageChoice, OutputMode, RuntimeChoice, RuntimeName, UserIds};
pub use variables::{ALL, Variable};
