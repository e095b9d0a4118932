//! Access tokens of the users of a bridge over HTTP.
//!
//! A token is 256 random bits that only its user knows. The state folder has one file for each, named by the hash of the token,
//! so that a token is found without a list, and a file that is read by others gives nobody access. Tokens of an issuer are not
//! ours: of its users it has those that the operator refuses.

mod name;
mod refused;
mod scopes;
mod store;

pub use name::{NameError, PrincipalName};
pub use refused::Refused;
pub use scopes::{Scope, ScopeError, Scopes};
pub use store::{Kept, NewToken, TokenError, TokenId, TokenList, Tokens, Unusable, new_secret};
