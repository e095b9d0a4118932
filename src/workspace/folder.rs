//! Where the users of a bridge have their folders.

use std::path::{Path, PathBuf};

/// The folder of the users of a bridge, in the state folder.
const PRINCIPALS: &str = "principals";

/// Returns the folder of one of many users of a bridge, in its state folder.
pub fn folder_of(state_dir: &Path, principal: &str) -> PathBuf {
    state_dir.join(PRINCIPALS).join(principal)
}

/// Returns the names of the users that have a folder.
pub fn principals(state_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state_dir.join(PRINCIPALS)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
