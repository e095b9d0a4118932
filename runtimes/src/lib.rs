//! Drives OCI sandboxes through podman, docker, crun and runc, and pods through kubectl, without any daemon API.
//!
//! ```text
//! detect, sweep ─▶ machine, sandbox ─▶ driver ─▶ engine (podman, docker) | oci (crun, runc) | kube
//!    ─▶ plan ─▶ state ─▶ root, rlimits ─▶ runtime, spec, owner ─▶ exec
//! engine, oci, kube, machine ─▶ messages ─▶ refusal
//! ```
//! [`SandboxSpec`] says what a sandbox is; a driver's `plan` turns it into a command line and files without touching
//! anything; [`Sandbox::launch`] carries the plan out; `reclaim` removes what is left, as often as one likes.
mod cgroup;
mod copies;
mod detect;
mod driver;
mod engine;
pub mod exec;
mod facts;
mod folders;
mod install;
mod kernel_memory;
mod kube;
mod machine;
mod memory;
mod messages;
mod mounts;
mod oci;
mod owner;
mod plan;
mod pod;
mod process;
mod process_table;
mod processor;
mod random;
mod refusal;
mod rlimits;
mod root;
mod runtime;
mod sandbox;
mod seccomp;
mod secrets;
mod spec;
mod state;
mod stragglers;
mod subids;
mod sweep;
mod watched_folders;

pub use copies::Copies;
pub use detect::{
    Choice, Detector, EngineImage, NothingWorks, Probe, ProbeReport, ProvidedRoot, RootProvider, Setback,
    Verdict, WantedImage, WantedRoot,
};
pub use driver::AnyDriver;
pub use engine::{Export, LocalImage, find_local_image};
pub use facts::{Fact, FactState, host_facts};
pub use folders::{ArchiveError, LeftOut, Oddities, Supplied, SupplyError, look_at};
pub use kube::Walls;
pub use machine::{MachinePolicy, MachineReport, ShareReport, supervise_machine};
pub use owner::{Owner, OwnerState, start_time as process_start_time};
pub use plan::{
    End, HeldLimits, LaunchError, Mechanism, OwnedSandbox, Plan, PlanError, ReclaimError, ShareMechanism,
};
pub use pod::{PodSettings, PullSecret, Toleration};
pub use processor::Meter;
pub use random::random_hex;
pub use refusal::{Product, Refusal, RootProblem};
pub use rlimits::OwnLimits;
pub use root::{Bind, ComposedRoot, RootError};
pub use runtime::{Address, CgroupMode, RuntimeChoice, RuntimeId, RuntimeKind, Target, TargetError};
pub use sandbox::{Gone, Sandbox};
pub use seccomp::node_profile;
pub use spec::{HostFolder, Limits, RootFs, RootLease, SandboxName, SandboxSpec, SpecError, Tmpfs, User};
pub use state::{Instance, Record, StateDir, StateError};
pub use sweep::{Swept, reclaim_instance, sweep};
