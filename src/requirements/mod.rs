//! What people and code write about Python packages: requirements, and which of them are allowed. Nothing here acts.

mod marker;
mod permission;
mod requirement;

pub use permission::{Permission, PermissionError};
pub use requirement::{Requirement, RequirementError, parse_list};
