//! Pods of a cluster, driven by kubectl: each sandbox is a pod, and the pipes of `kubectl run` are its own.
//!
//! A pod has a network, and not every cluster enforces policies. Two walls are between code and it: a seccomp filter that the
//! sandbox's program installs before any user code runs ([`crate::Sandbox::own_filter`]), and a NetworkPolicy for all our pods.

mod access;
mod driver;
#[cfg(test)]
mod fuzz;
mod manifest;
mod policy;
#[cfg(test)]
mod restricted;

pub use access::Walls;
pub(crate) use access::{Look, PodProbe};
pub(crate) use driver::KubeDriver;
