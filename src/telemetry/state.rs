//! What `codebridge doctor` says of telemetry.

use std::collections::BTreeSet;

use serde::Serialize;

use super::plan::{Plan, PlanError, Target};

/// Whether telemetry is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TelemetryStatus {
    /// No variable asks for it.
    Off,
    On,
    /// The variables ask for what the bridge cannot do.
    Refused,
}

/// What is sent where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TelemetryState {
    pub status: TelemetryStatus,
    /// Where traces go.
    pub traces: Option<String>,
    /// Where metrics go.
    pub metrics: Option<String>,
    /// The names of the headers. Their values are credentials.
    pub headers: Vec<String>,
    /// Why nothing arrives, and what to do.
    pub error: Option<String>,
}

impl TelemetryState {
    pub(super) fn off() -> Self {
        Self { status: TelemetryStatus::Off, traces: None, metrics: None, headers: Vec::new(), error: None }
    }

    pub(super) fn of(plan: &Result<Plan, PlanError>) -> Self {
        match plan {
            Ok(Plan { traces, metrics, .. }) => {
                let headers = traces.iter().chain(metrics).flat_map(|target| target.headers.keys().cloned());
                Self {
                    status: TelemetryStatus::On,
                    traces: traces.as_ref().map(Target::shown),
                    metrics: metrics.as_ref().map(Target::shown),
                    headers: headers.collect::<BTreeSet<_>>().into_iter().collect(),
                    error: None,
                }
            }
            Err(error) => {
                let error = format!("{error}\nhint: {}", error.hint);
                Self { status: TelemetryStatus::Refused, error: Some(error), ..Self::off() }
            }
        }
    }
}
