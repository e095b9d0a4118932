//! The metrics. Those of MCP have the names of the semantic conventions, our own begin with `codebridge.`.

use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

/// The bounds of durations in seconds, those of the semantic conventions for MCP.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// What is counted and measured.
#[derive(Debug)]
pub(super) struct Instruments {
    pub(super) server_duration: Histogram<f64>,
    pub(super) client_duration: Histogram<f64>,
    pub(super) runs: Counter<u64>,
    pub(super) sessions: UpDownCounter<i64>,
    pub(super) connections: UpDownCounter<i64>,
    pub(super) starts: Histogram<f64>,
    pub(super) output: Counter<u64>,
    pub(super) out_of_memory: Counter<u64>,
    pub(super) swept: Counter<u64>,
    pub(super) approvals: Counter<u64>,
}

impl Instruments {
    pub(super) fn of(meter: &Meter) -> Self {
        let seconds = |name: &'static str, what: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(what);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        let count = |name: &'static str, unit: &'static str, what: &'static str| {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        Self {
            server_duration: seconds("mcp.server.operation.duration", "Duration of a call of run_python"),
            client_duration: seconds(
                "mcp.client.operation.duration",
                "Duration of a call of a server's tool",
            ),
            runs: count("codebridge.runs", "{run}", "Runs of code"),
            sessions: meter
                .i64_up_down_counter("codebridge.sessions.open")
                .with_unit("{session}")
                .with_description("Sessions with a sandbox")
                .build(),
            connections: meter
                .i64_up_down_counter("codebridge.servers.connected")
                .with_unit("{connection}")
                .with_description("Connections to servers, also those that start")
                .build(),
            starts: seconds("codebridge.sandbox.start.duration", "Duration of the start of a sandbox"),
            output: count("codebridge.output", "By", "Output of code"),
            out_of_memory: count(
                "codebridge.runs.out_of_memory",
                "{run}",
                "Runs that lost a process to the memory limit",
            ),
            swept: count(
                "codebridge.sandboxes.swept",
                "{sandbox}",
                "Sandboxes of dead bridges that were removed",
            ),
            approvals: count(
                "codebridge.approvals",
                "{question}",
                "Questions to the person about what code may do",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_help_has_every_metric() {
        let help = include_str!("../help/telemetry.md");
        let code = include_str!("instruments.rs").split("mod tests").next().unwrap();
        let names: Vec<_> = code
            .split('"')
            .filter(|text| text.starts_with("mcp.") || text.starts_with("codebridge.") && !text.contains(' '))
            .collect();
        assert_eq!(names.len(), 10, "{names:?}");
        for name in names {
            assert!(help.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
