//! Servers that code looks for in the registry, and wants to add.

use tokio_util::sync::CancellationToken;

use super::access::ServerAccess;
use super::grant::ServerName;
use crate::session::questions::{AddServer, Answer, FindServers, QuestionError, ok};
use crate::upstream::registry::{Found, Listed, RegistryError};
use crate::upstream::{AddError, NewFrom, NewServer};

/// Servers in the result of one search.
const MOST_FOUND: u8 = 50;
const USUALLY_FOUND: u8 = 10;

impl ServerAccess {
    /// Returns the servers of the registry that fit some words.
    pub(in crate::session) async fn find_servers(
        &self,
        search: &FindServers,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let limit = search.limit.unwrap_or(USUALLY_FOUND).clamp(1, MOST_FOUND);
        let _turn = self.searches.acquire().await;
        let found = tokio::select! {
            found = self.upstream.registry().find(&search.query, limit.into()) => found?,
            () = cancel.cancelled() => return Err(QuestionError::plain("the search was cancelled")),
        };
        let Found { entries, left_out, .. } = found;
        if left_out > 0 {
            tracing::debug!(left_out, "entries of the registry were not understood");
        }
        Answer::work(move || ok(&entries.iter().map(Listed::of).collect::<Vec<_>>()))
    }

    /// Adds a server once the person has approved it. The current run may call it.
    pub(in crate::session) async fn add_server(
        &self,
        new: AddServer,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        self.must_be_attended()?;
        let (by, answers) = self.asker();
        let new = new_server(new)?;
        let server = tokio::select! {
            added = self.upstream.add_server(new, &by, &*answers) => added?,
            () = cancel.cancelled() => return Err(QuestionError::plain("the question was withdrawn")),
        };
        self.allow_server(&server);
        Answer::work(move || ok(&ServerName::of(&server)))
    }
}

fn new_server(new: AddServer) -> Result<NewServer, QuestionError> {
    let AddServer { name, registry, url, command, env, headers, description, for_good } = new;
    let (from, unused) = match (registry, url, command) {
        (Some(name), None, None) => (NewFrom::Registry(name), !env.is_empty() || !headers.is_empty()),
        (None, Some(url), None) => (NewFrom::Url { url, headers }, !env.is_empty()),
        (None, None, Some(words)) if !words.is_empty() => {
            (NewFrom::Command { words, env }, !headers.is_empty())
        }
        _ => {
            let message = "pass one of: a name of the registry, a URL, or a command as a list of words";
            return Err(QuestionError { kind: Some("arguments"), message: message.into() });
        }
    };
    if unused {
        let message = "headers are for servers with a URL, env for servers that a command starts";
        return Err(QuestionError { kind: Some("arguments"), message: message.into() });
    }
    Ok(NewServer { name, description, from, for_good })
}

impl From<RegistryError> for QuestionError {
    fn from(error: RegistryError) -> Self {
        AddError::from(error).into()
    }
}

impl From<AddError> for QuestionError {
    fn from(error: AddError) -> Self {
        let kind = match &error {
            _ if error.is_denial() => Some("denied"),
            AddError::Change(_) | AddError::Upstream(_) => Some("server"),
            _ => None,
        };
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Self { kind, ..Self::quoting(&message) }
    }
}
