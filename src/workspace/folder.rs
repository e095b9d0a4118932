//! Where the users of a bridge have their folders.

use std::path::{Path, PathBuf};

/// The folder of the users of a bridge, in the state folder.
const PRINCIPALS: &str = "principals";

/// Returns the folder of one of many users of a bridge, in its state folder.
pub fn folder_of(state_dir: &Path, principal: &str) -> PathBuf {
    state_dir.join(PRINCIPALS).join(principal)
}
