//! Errors of the commands that change definitions of servers.

use std::io;

use crate::error::Exit;
use crate::upstream::discovery::{ChangeError, Warning};
use crate::upstream::registry::RegistryError;
use crate::upstream::shell_word;

/// Why definitions were not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServersError {
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("'{name}' cannot be added: {why}")]
    NoRecipe { name: String, why: String },
    #[error("could not ask whether to add '{0}': standard input is not a terminal")]
    Unconfirmed(String),
    #[error("'{0}' is neither a URL nor a command, nor a name of the MCP registry")]
    What(String),
    #[error("could not find a name for the server")]
    NoName,
    #[error("{0} is for servers that a command starts")]
    OnlyCommand(&'static str),
    #[error("{0} is for servers with a URL")]
    OnlyUrl(&'static str),
    #[error("{0} has what looks like a credential")]
    Visible(String),
    #[error("no value for '{0}': standard input has ended")]
    NoValue(String),
    #[error("could not read the value of '{name}': {source}")]
    Value { name: String, source: io::Error },
    #[error("could not read the servers of {client}: {warning}")]
    Import { client: &'static str, warning: Warning },
    #[error("{client} has no server named '{name}'")]
    NotInClient { client: &'static str, name: String },
    #[error("no server named '{0}' is used")]
    NotUsed(String),
    #[error("nothing was changed")]
    Stopped,
}

impl ServersError {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Change(error) => hint_of(error),
            Self::What(name) => Some(format!(
                "`codebridge servers add {} -- COMMAND`, or a URL that starts with https://",
                shell_word(name)
            )),
            Self::Registry(error) => error.hint(),
            Self::Unconfirmed(_) => Some("add --yes if you have seen what it runs".into()),
            Self::NoName => Some("name it with --name".into()),
            Self::Visible(_) => Some(
                "other users can see command lines: write --env NAME or --header NAME without the value, which is then asked for, or \
                 refer to a variable: '${NAME}'"
                    .into(),
            ),
            Self::NoValue(_) => {
                Some("type it at a terminal, or write one line for each value to standard input".into())
            }
            Self::NotUsed(_) => Some("`codebridge servers` lists all definitions".into()),
            _ => None,
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Change(ChangeError::File(_) | ChangeError::Lock { .. })
            | Self::Value { .. }
            | Self::Import { .. } => Exit::Io,
            Self::Registry(error) => match error {
                RegistryError::NotSet | RegistryError::Unknown { .. } => Exit::Usage,
                _ => Exit::Server,
            },
            _ => Exit::Usage,
        }
    }
}

fn hint_of(error: &ChangeError) -> Option<String> {
    match error {
        ChangeError::Exists { name, .. } => Some(format!(
            "choose another name with --name, or remove that one first: `codebridge servers remove {}`",
            shell_word(name)
        )),
        ChangeError::Foreign { name, hides: true, .. } => {
            Some(format!("`codebridge servers disable {}` keeps codebridge from using it", shell_word(name)))
        }
        ChangeError::Foreign { hides: false, .. } => Some("change \"disabled\" in that file".into()),
        ChangeError::Disabled { name, .. } => {
            Some(format!("`codebridge servers enable {}` enables it", shell_word(name)))
        }
        ChangeError::Unknown(_) | ChangeError::NotDisabled { .. } => {
            Some("`codebridge servers` lists all definitions, and why one is not used".into())
        }
        ChangeError::Edit { .. } => Some("correct the file by hand".into()),
        _ => None,
    }
}
