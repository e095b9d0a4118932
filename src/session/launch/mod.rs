//! Starts interpreters: which runtime, which root, and the sandbox.

mod free_memory;
mod launcher;
mod roots;
mod shares;
mod spares;
mod start_progress;
mod template;

pub use launcher::{Launcher, cache_dir};
pub(super) use spares::Call;
