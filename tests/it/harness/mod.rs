//! The harness: the matrix of runtimes, an environment for each test, an MCP client, and a view of the host.

pub(crate) mod bridge;
pub(crate) mod collector;
pub(crate) mod engines;
pub(crate) mod env;
pub(crate) mod fake;
pub(crate) mod fake_docker;
pub(crate) mod fake_kubectl;
pub(crate) mod fake_machine;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod matrix;
pub(crate) mod mounted;
pub(crate) mod outcome;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod registry;
pub(crate) mod rootless;
pub(crate) mod ssh;
pub(crate) mod suite;
pub(crate) mod works;

pub(crate) use bridge::{Bridge, BridgeBuilder};
pub(crate) use env::TestEnv;
pub(crate) use matrix::{Kind, Machine, Runtime};
pub(crate) use outcome::Outcome;
pub(crate) use process::eventually;
pub(crate) use suite::Suite;
