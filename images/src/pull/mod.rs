//! Images from registries.
//!
//! `endpoints` says where to ask, `credentials` as whom, `environment` through which proxy. `remote` speaks with one
//! address, with `http` for what the registry library lacks; `layers` fetches what the store does not have. `puller`
//! goes from a name to an unpacked image.

mod credentials;
mod endpoints;
mod environment;
mod error;
#[cfg(test)]
mod fake_registry;
mod http;
mod layers;
mod puller;
mod remote;
#[cfg(test)]
mod tests;

pub use credentials::{CredentialError, CredentialHelper, HelperAnswer, HelperError};
pub use error::{ConnectionFailure, PullError, Reason, Tried};
pub(crate) use puller::Puller;
