//! Why a registry gave no answer. None of the texts has more of its address than the host.

use std::time::Duration;

/// Why a registry gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("no MCP registry is set")]
    NotSet,
    #[error("could not ask the MCP registry at {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error("the MCP registry at {host} did not answer within {} s", limit.as_secs())]
    TimedOut { host: String, limit: Duration },
    #[error("the answer of the MCP registry at {host} is longer than {} KiB", most >> 10)]
    TooLong { host: String, most: usize },
    #[error("the MCP registry at {host} answered something else than a list of servers: {why}")]
    Unreadable { host: String, why: String },
    #[error("the MCP registry at {host} has no server named '{name}'")]
    Unknown { host: String, name: String },
}

impl RegistryError {
    /// Returns what the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotSet => Some(
                "set MCP_BRIDGE_REGISTRY (--registry) to the URL of one: `codebridge help servers`".into(),
            ),
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                Some("try again later, or check MCP_BRIDGE_REGISTRY (--registry)".into())
            }
            Self::TooLong { .. } | Self::Unreadable { .. } => {
                Some("check that MCP_BRIDGE_REGISTRY (--registry) is the URL of an MCP registry".into())
            }
            Self::Unknown { name, .. } => {
                let words = name.rsplit('/').next().unwrap_or_default();
                Some(format!("look for its name with `codebridge servers find {words}`"))
            }
        }
    }
}
