//! Names in questions.

use std::ops::Deref;

use serde::Deserialize;

/// Bytes of a name of a server or a tool. No real one is longer.
pub(super) const LONGEST_NAME: usize = 512;

/// A name that is short enough to be compared with others.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::session) struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // The name is not quoted: it may have megabytes.
        if name.len() <= LONGEST_NAME { Ok(Self(name)) } else { Err(too_long()) }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Says that a name is too long.
pub(super) fn too_long() -> String {
    format!("a name is longer than {LONGEST_NAME} bytes")
}
