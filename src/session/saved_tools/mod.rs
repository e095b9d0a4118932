//! Functions that the user's code has saved for later sessions.

mod reserved;
mod store;

pub(super) use store::{LONGEST_SOURCE, SavedTools};
