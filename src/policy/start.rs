//! The policy that `codebridge policy init` writes.

/// A policy with explanations: tools that only read are allowed, the person is asked about all others.
pub const START: &str = include_str!("start.toml");
