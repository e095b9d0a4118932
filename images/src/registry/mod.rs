//! Access to registries.
//!
//! `endpoints` says where to ask, `credentials` as whom, `environment` through which proxy. `remote` speaks with one
//! address, with `http` for what the registry library lacks.

pub(crate) mod credentials;
pub(crate) mod endpoints;
pub(crate) mod environment;
pub(crate) mod error;
#[cfg(test)]
pub(crate) mod fake_registry;
pub(crate) mod http;
pub(crate) mod remote;

pub use credentials::{CredentialError, CredentialHelper, HelperAnswer, HelperError};
pub use error::{ConnectionFailure, PullError, Reason, Tried};
