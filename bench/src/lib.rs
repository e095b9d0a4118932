//! What several benchmarks need.

pub mod bare;
pub mod client;
pub mod machine;
