//! Why the audit log cannot be written.

use std::io;
use std::path::PathBuf;

/// Why the audit log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log cannot be written: '{}': {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the audit log cannot be written: '{}' belongs to another user", .0.display())]
    Foreign(PathBuf),
    #[error("the audit log cannot be written: '{}' can be written by other users", .0.display())]
    Open(PathBuf),
    #[error("the audit log cannot be written: '{}' does not answer", .0.display())]
    Slow(PathBuf),
    #[error("the audit log cannot be written: its thread has ended")]
    Ended,
}

impl AuditError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::Io { path, source }
    }

    /// Returns what the user can do about it.
    pub fn hint(&self) -> String {
        let does = "or set MCP_BRIDGE_AUDIT=off";
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    format!("free some space, {does}")
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    format!("set MCP_BRIDGE_STATE_DIR to a writable folder, {does}")
                }
                _ => format!("make the folder writable for you, {does}"),
            },
            Self::Foreign(_) => format!("give the folder to the user who runs codebridge, {does}"),
            Self::Open(path) => format!("run `chmod go-w '{}'`, {does}", path.display()),
            Self::Slow(_) => format!("look at its disk, {does}"),
            Self::Ended => "restart codebridge".into(),
        }
    }
}
