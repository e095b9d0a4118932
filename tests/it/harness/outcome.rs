//! The result of a call as a client sees it, with the defaults that a compact result leaves out.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// What a call of `run_python` came to.
#[derive(Debug, Clone)]
#[must_use]
pub(crate) struct Outcome {
    /// The first text block.
    pub(crate) text: String,
    pub(crate) structured: Value,
    pub(crate) is_error: bool,
    /// From the request to its answer, as the client saw it.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    pub(crate) fn parse(result: &Value, elapsed: Duration) -> Self {
        let block = &result["content"][0];
        assert_eq!(block["type"], "text", "{result}");
        Self {
            text: block["text"].as_str().unwrap().to_string(),
            structured: result["structuredContent"].clone(),
            is_error: result["isError"].as_bool().unwrap_or(false),
            elapsed,
        }
    }

    pub(crate) fn status(&self) -> &str {
        self.structured["status"].as_str().unwrap_or("success")
    }

    /// The exit code; None when the result does not know one.
    pub(crate) fn exit(&self) -> Option<i64> {
        match &self.structured["exitCode"] {
            Value::Null if self.status() == "success" => Some(0),
            code => code.as_i64(),
        }
    }

    pub(crate) fn stdout(&self) -> String {
        lines(&self.structured["stdout"])
    }

    pub(crate) fn stderr(&self) -> String {
        lines(&self.structured["stderr"])
    }

    pub(crate) fn error(&self) -> &str {
        self.structured["error"].as_str().unwrap_or_default()
    }

    pub(crate) fn notices(&self) -> String {
        lines(&self.structured["notices"])
    }

    /// The standard output; the call must have succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.status(), self.is_error), ("success", false), "{self}");
        self.stdout()
    }

    /// Checks how it ended.
    pub(crate) fn expect(self, status: &str) -> Self {
        assert_eq!(self.status(), status, "{self}");
        assert_eq!(self.is_error, status != "success", "{self}");
        self
    }

    /// Checks that it ended within this time, as the client saw it.
    pub(crate) fn within(self, limit: Duration) -> Self {
        assert!(self.elapsed < limit, "took longer than {limit:?}\n{self}");
        self
    }

    /// Checks that its error says this.
    pub(crate) fn because(self, what: &str) -> Self {
        assert!(self.error().contains(what), "no '{what}' in the error\n{self}");
        self
    }

    /// Checks that its notices say this.
    pub(crate) fn noting(self, what: &str) -> Self {
        assert!(self.notices().contains(what), "no '{what}' in the notices\n{self}");
        self
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {:.1?}: {}\n{}", self.elapsed, self.structured, self.text)
    }
}

fn lines(value: &Value) -> String {
    let lines = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.collect::<Vec<_>>().join("\n")
}
