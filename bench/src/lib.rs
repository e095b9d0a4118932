//! What several benchmarks need.

pub mod client;
pub mod machine;
