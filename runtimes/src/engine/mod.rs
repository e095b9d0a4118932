//! podman and docker: one driver, two rows of facts.
//!
//! `plan` computes the command line of a sandbox, `driver` drives the engine, `dialect` holds the facts, `info` reads what engines
//! report about themselves, `skeleton` makes the image that lets docker start a folder, `volumes` copies folders to engines
//! elsewhere, `export` exports images from their stores, `desktop` knows the products that run docker's engine.

mod desktop;
mod dialect;
mod driver;
mod export;
#[cfg(test)]
mod fuzz;
mod info;
mod plan;
mod skeleton;
mod volumes;

pub(crate) use desktop::DockerService;
pub(crate) use driver::{COMMAND_LIMIT, EngineDriver};
pub use export::{Export, LocalImage, find_local_image};
pub(crate) use info::EngineInfo;
