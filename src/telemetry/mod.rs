//! Traces and metrics for an OpenTelemetry collector, off unless the `OTEL_*` variables of the standard name one.
//!
//! `plan` reads the variables, `pipeline` builds the exporters at the first run, `sender` posts what they export, and the
//! other files record: a span for each run and each call, and metrics. Nothing here sees code, arguments or results.

mod context;
mod facts;
mod instruments;
mod pipeline;
mod plan;
mod record;
mod sender;
mod state;

pub use context::TraceContext;
pub use facts::{Failed, RunEnd, Transport};
pub use plan::VARIABLES;
pub use record::{CallSpan, Opened, RunSpan, Telemetry};
pub use state::{TelemetryState, TelemetryStatus};
