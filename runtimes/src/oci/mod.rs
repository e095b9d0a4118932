//! crun and runc: a bundle written by us, and the runtime's `run`, `delete` and state folder.
//!
//! `driver` drives them, `bundle` builds `config.json`, `idmap` chooses the ids of the user namespace.

mod bundle;
mod driver;
mod idmap;

pub(crate) use driver::OciDriver;
