//! What is wrong with a file of definitions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use codebridge_runtimes::exec::visible_line;

/// Something wrong with a file or one of its entries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Warning {
    pub path: Arc<Path>,
    /// From 1.
    pub line: Option<usize>,
    pub kind: WarningKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WarningKind {
    /// The user has named a file that does not exist. The program says it at its start, also if nothing asks for servers.
    NoSuchFile,
    /// What is wrong with a file that is there.
    Content,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, message) = (self.path.display(), visible_line(&self.message));
        match self.line {
            Some(line) => write!(f, "{path}:{line}: {message}"),
            None => write!(f, "{path}: {message}"),
        }
    }
}
