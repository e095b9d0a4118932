//! Which runtime, and where: the vocabulary of the crate.
//!
//! `target` is a runtime as its user names it, `address` is how one engine is reached, `id` is everything needed to drive a
//! runtime and to find its sandboxes from another process.

mod address;
mod id;
mod target;

pub use address::Address;
pub use id::{CgroupMode, RuntimeId};
pub use target::{RuntimeChoice, RuntimeKind, Target, TargetError};
