//! Starts interpreters: which runtime, which root, and the sandbox.

mod launcher;
mod roots;
mod start_progress;
mod template;

pub use launcher::{Launcher, cache_dir};
