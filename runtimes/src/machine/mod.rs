//! podman machine: the virtual machine that podman needs where there is no Linux below it.
//!
//! Nothing here happens on a host whose podman is local: it starts with podman's own word that it cannot reach its engine.
//! `podman` asks the client, `manager` starts machines and makes one, `folder` keeps locks and records of what we started,
//! `supervisor` stops that again, `share` finds out whether a remote engine sees a folder of this host.
//!
//! ```text
//! <cache>/machine.lock           held by the bridge that starts, makes or stops a machine
//! <cache>/machine-use.lock       held by bridges that try engines, and by a supervisor that stops a machine
//! <cache>/machine-<name>.json    which of its runs was started by a bridge; it goes when that is over
//! <cache>/supervisor-<name>.lock held by the supervisor of the machine
//! <cache>/shares.json            which engine sees which folder
//! ```

mod folder;
mod manager;
mod podman;
mod share;
mod supervisor;

pub(crate) use manager::Machines;
pub use manager::{MachinePolicy, MachineReport};
pub use share::ShareReport;
pub use supervisor::supervise_machine;
