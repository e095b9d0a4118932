//! What a login is for: a server at a URL.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::Url;

use super::error::{LoginError, Problem};
use super::fetch::LIMIT;
use crate::upstream::discovery::{HttpOptions, Launch};

/// A server to which a person can log in.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) server: Arc<str>,
    /// Where it is, without user, password, query and fragment: these may be credentials.
    pub(super) resource: Url,
    /// The same as text, as logins are found.
    pub(super) key: String,
    /// As its definition has it.
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) options: Arc<HttpOptions>,
    /// How long each answer about a login may take.
    pub(super) limit: Duration,
}

impl Target {
    /// Returns why there is none, for a server without a login.
    pub(super) fn of(server: &Arc<str>, launch: &Launch) -> Result<Self, LoginError> {
        let problem = |problem| LoginError { server: Arc::clone(server), problem };
        let Launch::Http { url, headers, options, .. } = launch else { return Err(problem(Problem::Local)) };
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(header::AUTHORIZATION.as_str())) {
            return Err(problem(Problem::HasHeader));
        }
        let url: Url = url.parse().map_err(|_| problem(Problem::Url))?;
        let mut resource = url.clone();
        resource.set_query(None);
        resource.set_fragment(None);
        if resource.set_username("").is_err() || resource.set_password(None).is_err() {
            return Err(problem(Problem::Url));
        }
        let header = |(name, value): &(String, String)| {
            let mut value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        };
        Ok(Self {
            server: Arc::clone(server),
            key: resource.to_string(),
            resource,
            url,
            headers: headers.iter().filter_map(header).collect(),
            options: Arc::clone(options),
            limit: LIMIT,
        })
    }

    pub(super) fn failed(&self, problem: Problem) -> LoginError {
        LoginError { server: Arc::clone(&self.server), problem }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, headers: &[(&str, &str)]) -> Result<Target, LoginError> {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Target::of(
            &"s".into(),
            &Launch::Http { url: url.into(), headers, older: false, options: Arc::default() },
        )
    }

    #[test]
    fn what_may_be_a_credential_is_no_part_of_the_name_that_providers_get() {
        let target =
            target("https://ann:hunter2@h.example:8/mcp/?key=hunter2#hunter2", &[("X-Key", "hunter2")])
                .unwrap();
        assert_eq!(target.key, "https://h.example:8/mcp/");
        assert!(!format!("{target:?}").contains("hunter2"));
    }

    #[test]
    fn a_definition_with_a_login_of_its_own_needs_no_other() {
        let error = target("https://h.example/mcp", &[("authorization", "Bearer x")]).unwrap_err();
        assert!(matches!(error.problem, Problem::HasHeader));
        let launch = Launch::Stdio { command: "x".into(), args: Vec::new(), env: Vec::new(), cwd: None };
        assert!(matches!(Target::of(&"s".into(), &launch).unwrap_err().problem, Problem::Local));
    }
}
