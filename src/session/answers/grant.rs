//! Which of the user's MCP servers a run may call.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use tokio::task::{JoinError, spawn_blocking};

use crate::upstream::discovery::{Server, Snapshot};
use crate::upstream::{Answers, Askers, Upstream, UpstreamError, shell_word};

/// Stands for every server in the list of a call.
const ANY: &str = "*";

#[derive(Debug, Clone)]
pub(in crate::session) enum Grant {
    /// None; no definition was read.
    Nothing,
    Named(Vec<Arc<Server>>),
    /// Every server, also one that is defined later; the snapshot has those of now.
    Any(Arc<Snapshot>),
}

/// Why a call cannot have the servers that it names.
#[derive(Debug, thiserror::Error)]
pub(in crate::session) enum GrantError {
    #[error(transparent)]
    Server(#[from] UpstreamError),
    #[error("failed to read the server definitions: {0}")]
    Lookup(#[from] JoinError),
}

impl GrantError {
    /// Returns the error and what to do about it.
    pub(in crate::session) fn with_hint(&self) -> String {
        match self {
            Self::Server(error) => error.with_hint(),
            Self::Lookup(_) => self.to_string(),
        }
    }
}

/// A server as code sees it.
#[derive(Debug, Serialize)]
pub(super) struct ServerName<'a> {
    pub(super) name: &'a str,
    pub(super) alias: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<Cow<'a, str>>,
}

impl<'a> ServerName<'a> {
    pub(super) fn of(server: &'a Server) -> Self {
        Self { name: &server.name, alias: &server.alias, description: None }
    }
}

impl Grant {
    /// Returns the grant that a call asks for. The person may have to approve a definition first.
    ///
    /// # Errors
    /// A named server does not exist, or its definition is not used.
    pub(in crate::session) async fn of(
        names: &[String],
        upstream: &Upstream,
        answers: &dyn Answers,
    ) -> Result<Self, GrantError> {
        if names.is_empty() {
            return Ok(Self::Nothing);
        }
        loop {
            let (names, upstream_of_thread) = (names.to_vec(), upstream.clone());
            // Definitions are read from files.
            let found = spawn_blocking(move || Self::look_up(&names, &upstream_of_thread)).await?;
            match found {
                Ok(grant) => return Ok(grant),
                Err(error) => upstream.ask_for_approval(error, answers).await?,
            }
        }
    }

    fn look_up(names: &[String], upstream: &Upstream) -> Result<Self, UpstreamError> {
        if names.iter().any(|name| name == ANY) {
            return upstream.usable().map(Self::Any);
        }
        let mut servers: Vec<Arc<Server>> = Vec::with_capacity(names.len());
        for name in names {
            let server = upstream.server(name)?;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        Ok(Self::Named(servers))
    }

    /// Returns what the guest learns before the run, as JSON.
    pub(in crate::session) fn context(&self) -> Vec<u8> {
        let (any, servers) = match self {
            Self::Nothing => return b"{}".to_vec(),
            Self::Named(servers) => (false, servers),
            Self::Any(snapshot) => (true, &snapshot.servers),
        };
        let servers: Vec<_> = servers.iter().map(|server| ServerName::of(server)).collect();
        let mut context = json!({ "servers": servers });
        if any {
            context["any"] = true.into();
        }
        context.to_string().into_bytes()
    }

    /// Returns the servers that may ask the client of the run.
    pub(super) fn askers(&self) -> Askers {
        match self {
            Self::Nothing => Some(Vec::new()),
            Self::Named(servers) => Some(servers.iter().map(|server| Arc::clone(&server.name)).collect()),
            Self::Any(_) => None,
        }
    }

    /// Returns the servers as the caller named them.
    pub(in crate::session) fn names(&self) -> Vec<Arc<str>> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Named(servers) => servers.iter().map(|server| Arc::clone(&server.name)).collect(),
            Self::Any(_) => vec![ANY.into()],
        }
    }

    pub(super) fn allows(&self, server: &Server) -> bool {
        match self {
            Self::Nothing => false,
            Self::Named(servers) => servers.iter().any(|named| named.name == server.name),
            Self::Any(_) => true,
        }
    }
}

/// Returns the message for code that calls a server outside of its grant: for a client, or `one_shot` for a person at a
/// terminal.
pub(super) fn not_available(name: &str, one_shot: bool) -> String {
    if one_shot {
        let word = shell_word(name);
        return format!(
            "Server '{name}' is not available: this run may not use it. Add --server {word}, or --server '*' for any."
        );
    }
    format!(
        "Server '{name}' is not available: this call of run_python may not use it. Name it in the call: servers=[{}], \
         or servers=[\"*\"] for any.",
        json!(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_outside_of_the_grant_is_named_as_its_reader_writes_it() {
        let (client, terminal) = (not_available("my fake", false), not_available("my fake", true));
        assert!(client.contains(r#"servers=["my fake"]"#) && !client.contains("--server"), "{client}");
        assert!(terminal.contains("--server 'my fake'") && !terminal.contains("servers="), "{terminal}");
    }
}
