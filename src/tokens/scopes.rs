//! What a token is for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One thing that a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Calls over MCP.
    Mcp,
    /// The console.
    Console,
    /// Answers to questions that rules ask.
    Approve,
    /// `/metrics`.
    Metrics,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Mcp, Self::Console, Self::Approve, Self::Metrics];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Console => "console",
            Self::Approve => "approve",
            Self::Metrics => "metrics",
        }
    }
}

/// All that a token is for; never nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scopes(Vec<Scope>);

/// Scopes that no token can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error("unknown scope '{0}': expected mcp, console, approve or metrics, separated by commas")]
    Unknown(String),
    #[error("a token for mcp cannot approve: what a model can call must not answer for the person")]
    ApprovesItself,
}

impl Scopes {
    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Returns those of a token that is for everything that one token may be for.
    pub fn of_owner() -> Self {
        Self(vec![Scope::Mcp, Scope::Console, Scope::Metrics])
    }

    /// Returns those of a token for a console alone, and for what is asked there.
    pub fn of_console() -> Self {
        Self(vec![Scope::Console, Scope::Approve])
    }

    /// Returns those of a token for calls.
    pub fn mcp() -> Self {
        Self(vec![Scope::Mcp])
    }

    /// Returns those of a token of an issuer, of what it names: for calls, and for the console if it says so. One that may
    /// approve is not for calls, and one that is named for calls may not approve.
    pub fn of_issuer<'a>(named: impl IntoIterator<Item = &'a str>) -> Self {
        let named: Vec<&str> = named.into_iter().collect();
        let has = |scope: Scope| named.contains(&scope.name());
        let approves = has(Scope::Approve) && !has(Scope::Mcp);
        let granted =
            [(Scope::Mcp, !approves), (Scope::Console, has(Scope::Console)), (Scope::Approve, approves)];
        Self(granted.into_iter().filter_map(|(scope, is_granted)| is_granted.then_some(scope)).collect())
    }

    /// Whether a token may have these. Files can be edited.
    pub(super) fn are_allowed(&self) -> bool {
        let approves_itself = self.has(Scope::Mcp) && self.has(Scope::Approve);
        !self.0.is_empty() && !approves_itself
    }
}

impl FromStr for Scopes {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let parse = |name: &str| {
            let known = Scope::ALL.into_iter().find(|scope| scope.name() == name);
            known.ok_or_else(|| ScopeError::Unknown(name.to_owned()))
        };
        let mut scopes: Vec<Scope> =
            text.split(',').map(|name| parse(name.trim())).collect::<Result<_, _>>()?;
        scopes.sort();
        scopes.dedup();
        let scopes = Self(scopes);
        if scopes.are_allowed() { Ok(scopes) } else { Err(ScopeError::ApprovesItself) }
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|scope| scope.name()).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_for_calls_never_approves() {
        assert_eq!("metrics, mcp,mcp".parse::<Scopes>().unwrap().to_string(), "mcp,metrics");
        assert_eq!("console,approve".parse::<Scopes>().unwrap().to_string(), "console,approve");
        assert_eq!("mcp,approve".parse::<Scopes>(), Err(ScopeError::ApprovesItself));
        assert_eq!("all".parse::<Scopes>(), Err(ScopeError::Unknown("all".into())));
        assert_eq!("".parse::<Scopes>(), Err(ScopeError::Unknown(String::new())));
    }

    #[test]
    fn an_issuer_opens_the_console_and_never_makes_a_token_that_calls_and_approves() {
        for (named, granted) in [
            ("", "mcp"),
            ("openid email", "mcp"),
            ("console", "mcp,console"),
            ("mcp console metrics", "mcp,console"),
            ("console approve", "console,approve"),
            ("mcp console approve", "mcp,console"),
            ("approve", "approve"),
        ] {
            let scopes = Scopes::of_issuer(named.split(' '));
            assert!(scopes.are_allowed() && scopes.to_string() == granted, "{named}: {scopes}");
        }
    }
}
