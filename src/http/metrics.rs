//! Numbers for Prometheus, in its text format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use http::StatusCode;

use super::connections::Connections;
use super::users::Users;

/// The type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is counted of requests.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Answers by the first digit of their status.
    answers: [AtomicU64; 5],
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Metrics {
    pub(super) fn count_answer(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.answers[class].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refusal(&self, reason: &'static str) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }

    /// Returns the text.
    pub(super) async fn text(&self, users: &Users, connections: &Connections) -> String {
        let mut text = Text(String::new());
        let load = users.quotas.load();
        let (open, sessions) = users.count().await;
        text.head("codebridge_build_info", "gauge", "The version of codebridge.");
        text.line("codebridge_build_info", Some(("version", env!("CARGO_PKG_VERSION"))), 1);
        text.gauge("codebridge_http_connections", "Open connections.", connections.open());
        text.head("codebridge_http_responses_total", "counter", "Responses by class of their status.");
        for (class, count) in self.answers.iter().enumerate() {
            let class = format!("{}xx", class + 1);
            text.line(
                "codebridge_http_responses_total",
                Some(("class", &class)),
                count.load(Ordering::Relaxed),
            );
        }
        text.head(
            "codebridge_http_refused_total",
            "counter",
            "Requests that were refused before they were read.",
        );
        for (reason, count) in &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            text.line("codebridge_http_refused_total", Some(("reason", reason)), count);
        }
        text.gauge("codebridge_users", "Users with a workspace.", open);
        text.gauge("codebridge_mcp_sessions", "Open sessions of the protocol.", sessions);
        text.gauge("codebridge_runs", "Runs under way.", load.running);
        text.gauge("codebridge_runs_waiting", "Calls that wait for a place.", load.waiting);
        text.head("codebridge_runs_total", "counter", "Runs by how they ended.");
        for (status, count) in users.counts.ended() {
            text.line("codebridge_runs_total", Some(("status", status)), count);
        }
        text.head("codebridge_run_seconds_total", "counter", "Seconds of all runs.");
        text.line("codebridge_run_seconds_total", None, users.counts.seconds());
        text.head(
            "codebridge_calls_over_quota_total",
            "counter",
            "Calls that were refused because of a quota.",
        );
        text.line("codebridge_calls_over_quota_total", None, users.counts.refused_by_quota());
        text.0
    }
}

/// The text. No value of a label comes from outside.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, label: Option<(&str, &str)>, value: impl Display) {
        let _ = match label {
            Some((label, text)) => writeln!(self.0, "{name}{{{label}=\"{text}\"}} {value}"),
            None => writeln!(self.0, "{name} {value}"),
        };
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) {
        self.head(name, "gauge", help);
        self.line(name, None, value);
    }
}
