//! podman machine: the virtual machine that podman needs where there is no Linux below it.
//!
//! Nothing here happens on a host whose podman is local: it starts when podman reports that it cannot reach its engine.
//! `podman` asks the client, `manager` starts machines and makes one, `folder` keeps locks and records of what we started,
//! `supervisor` stops it again, `share` finds out whether a remote engine sees a folder of this host.
//!
//! ```text
//! <cache>/machine.lock           held by the bridge that starts, makes or stops a machine
//! <cache>/machine-use.lock       held by bridges that use engines, and by a supervisor that stops a machine
//! <cache>/machine-<name>.json    the run of the machine that a bridge started; removed when the run is over
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
