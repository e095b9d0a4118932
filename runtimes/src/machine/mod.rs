//! podman machine: the virtual machine that podman needs where there is no Linux below it.
//!
//! Nothing here happens on a host whose podman is local: it starts with podman's own word that it cannot reach its engine.
//! `words` reads what podman says, `podman` asks the client, `manager` starts machines and makes one, `record` remembers what
//! we started, `supervisor` stops that again, `share` finds out whether a remote engine sees a folder of this host, `desktop`
//! knows the products that keep docker's engine in a machine of theirs, which are the user's to start.
//!
//! ```text
//! <cache>/machine.lock           held by the bridge that starts, makes or stops a machine
//! <cache>/machine-use.lock       held by bridges that try engines, and by a supervisor that stops a machine
//! <cache>/machine-<name>.json    which of its runs was started by a bridge; it goes when that is over
//! <cache>/supervisor-<name>.lock held by the supervisor of the machine
//! <cache>/shares.json            which engine sees which folder
//! ```

mod desktop;
mod manager;
mod podman;
mod record;
mod share;
mod supervisor;
mod words;

pub use desktop::Product;
pub(crate) use desktop::find_stopped;
pub(crate) use manager::Machines;
pub use manager::{MachinePolicy, MachineReport};
pub use share::ShareReport;
pub use supervisor::supervise_machine;
pub(crate) use words::parse_unreachable;
