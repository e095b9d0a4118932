//! Chooses the runtime: the first one that ran a probe sandbox.
//!
//! Nothing is looked for before the first execution. `candidate` tries one runtime with one root, `cache` keeps a good
//! choice on disk between runs, `fleet` spreads sandboxes over several engines, `peer` is a second pod for the probe of a
//! cluster, `detector` chooses among the rest.

mod cache;
mod candidate;
mod choice;
mod detector;
mod fleet;
mod peer;
mod provider;

pub use cache::Setback;
pub use choice::{Choice, NothingWorks, Probe, ProbeReport, Verdict};
pub use detector::Detector;
pub use provider::{EngineImage, ProvidedRoot, RootProvider, WantedImage, WantedRoot};
