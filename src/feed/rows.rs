//! Sessions and servers as plain data.

use serde::{Deserialize, Serialize};

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub bridge: String,
    pub name: String,
    pub runtime: String,
    pub image: String,
    pub age_ms: u64,
    /// How long it has done nothing; None while code runs in it.
    pub idle_ms: Option<u64>,
    /// The run of now.
    pub run: Option<String>,
    /// Memory and processor time of its sandbox; None where this host does not see its processes, or has not looked yet.
    pub memory_bytes: Option<u64>,
    pub processor_ms: Option<u64>,
}

/// A server that code may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    pub bridge: String,
    pub name: String,
    /// `running`, `starting`, `stopped`, or `failed` if it could not be started.
    pub state: String,
    /// Why it could not be used, if that was so the last time.
    pub error: Option<String>,
    /// None if they are not known yet.
    pub tools: Option<usize>,
    pub description: Option<String>,
    /// `stdio`, `http` or `openapi`.
    pub transport: String,
}
