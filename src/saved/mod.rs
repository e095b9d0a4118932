//! Functions that code has saved for later sessions, in the folder `tools` of the state folder.
//!
//! ```text
//! tools/NAME.py                        the source of one function; the user may read, edit, add and delete these
//! tools/.versions/NAME/N.py            earlier versions, of which the last nine are kept
//! tools/.versions/NAME/about.json      what is known of the current one; files that were added by hand have none
//! tools/.versions/.lock                held by whoever writes
//! ```
//! Every file appears with one rename. What code says of its functions is hostile input: bounded, and checked before it is kept.

mod details;
mod error;
mod limits;
mod record;
mod reserved;
mod scan;
mod skill;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use details::{Details, LONGEST_DETAILS, RawDetails};
pub use error::ToolError;
pub use limits::{LONGEST_EXAMPLE, LONGEST_SOURCE};
pub use record::{NewTool, Tested};
pub use skill::{Skill, skill_name};
pub use state::State;
pub use store::{LoadedTools, SavedTool, SavedTools, Trouble};
