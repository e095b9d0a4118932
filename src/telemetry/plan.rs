//! What the `OTEL_*` variables ask for: <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::sender::shown;
use crate::settings::Environment;

/// The variables that the bridge reads itself. The SDK reads others, such as those of the sampler.
pub static VARIABLES: [&str; 14] = [
    DISABLED,
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    TRACE_PARENT,
    TRACE_STATE,
];

const DISABLED: &str = "OTEL_SDK_DISABLED";
/// The trace that a command belongs to, from whatever started it.
pub(super) const TRACE_PARENT: &str = "TRACEPARENT";
pub(super) const TRACE_STATE: &str = "TRACESTATE";
/// Where a collector on the same machine listens.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
/// How long a request may take.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// What is sent where.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) traces: Option<Target>,
    pub(super) metrics: Option<Target>,
    pub(super) limit: Duration,
}

/// Where one kind of telemetry goes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) endpoint: Uri,
    pub(super) headers: HashMap<String, String>,
}

impl Target {
    /// Returns the address without its query, which may have a credential.
    pub(super) fn shown(&self) -> String {
        shown(&self.endpoint)
    }
}

/// Why telemetry cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {why}")]
pub(super) struct PlanError {
    variable: String,
    why: String,
    /// What to do.
    pub(super) hint: &'static str,
}

/// One kind of telemetry.
#[derive(Debug, Clone, Copy)]
enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }
}

impl Plan {
    /// Returns what the variables ask for; None if that is nothing.
    ///
    /// # Errors
    /// They ask for something that the bridge cannot do.
    pub(super) fn of(environment: &Environment) -> Result<Option<Self>, PlanError> {
        let variables = Variables(environment);
        if variables.get(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let traces = variables.target(Signal::Traces)?;
        let metrics = variables.target(Signal::Metrics)?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        Ok(Some(Self { traces, metrics, limit: variables.limit()? }))
    }
}

/// Returns the trace that the environment names.
pub(super) fn parent_of(environment: &Environment) -> super::TraceContext {
    let variables = Variables(environment);
    super::TraceContext::parse(variables.get(TRACE_PARENT), variables.get(TRACE_STATE))
}

struct Variables<'a>(&'a Environment);

impl<'a> Variables<'a> {
    /// Returns the value of a variable. An empty one counts as none.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.to_str().map(str::trim).filter(|value| !value.is_empty())
    }

    /// Returns the value of a variable that a signal may have its own of, with its name.
    fn get_for(&self, signal: Signal, what: &str) -> Option<(String, &'a str)> {
        let names =
            [format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name()), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn target(&self, signal: Signal) -> Result<Option<Target>, PlanError> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.name());
        let is_explicit = match self.get(&exporter) {
            Some("none") => return Ok(None),
            Some("otlp") => true,
            None => false,
            Some(other) => {
                let why = format!("the bridge has no exporter '{}'", short(other));
                return Err(PlanError { variable: exporter, why, hint: "use otlp or none" });
            }
        };
        let Some(endpoint) = self.endpoint(signal, is_explicit)? else { return Ok(None) };
        if let Some((variable, protocol)) = self.get_for(signal, "PROTOCOL")
            && protocol != "http/protobuf"
        {
            let why = format!("the bridge does not speak '{}'", short(protocol));
            let hint = "set it to http/protobuf, and the endpoint to the port for it, usually 4318";
            return Err(PlanError { variable, why, hint });
        }
        if let Some((variable, compression)) = self.get_for(signal, "COMPRESSION")
            && !["gzip", "none"].contains(&compression)
        {
            let why = format!("the bridge has no compression '{}'", short(compression));
            return Err(PlanError { variable, why, hint: "use gzip or none" });
        }
        Ok(Some(Target { endpoint, headers: self.headers(signal)? }))
    }

    fn endpoint(&self, signal: Signal, is_explicit: bool) -> Result<Option<Uri>, PlanError> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name());
        let common = "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned();
        let joined = |base: &str| format!("{}{}", base.trim_end_matches('/'), signal.path());
        let (variable, text) = match (self.get(&own), self.get(&common)) {
            (Some(endpoint), _) => (own, endpoint.to_owned()),
            (None, Some(base)) => (common, joined(base)),
            (None, None) if is_explicit => (common, joined(DEFAULT_ENDPOINT)),
            (None, None) => return Ok(None),
        };
        // The text is not shown: it may have a credential.
        let wrong = |why: &str, hint| PlanError { variable: variable.clone(), why: why.into(), hint };
        let example = "set it to an address such as http://localhost:4318";
        let uri: Uri = text.parse().map_err(|_| wrong("this is no address", example))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.is_empty() {
            return Err(wrong("this is no address that begins with http:// or https://", example));
        }
        if authority.contains('@') {
            return Err(wrong(
                "the address has a user name",
                "put credentials into OTEL_EXPORTER_OTLP_HEADERS",
            ));
        }
        Ok(Some(uri))
    }

    /// Returns the headers. Their values are written as in a URL.
    fn headers(&self, signal: Signal) -> Result<HashMap<String, String>, PlanError> {
        let Some((variable, text)) = self.get_for(signal, "HEADERS") else { return Ok(HashMap::new()) };
        let wrong = |number: usize| PlanError {
            variable: variable.clone(),
            why: format!("header {number} is malformed"),
            hint: "write it as name=value, and separate headers by commas",
        };
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let header = |(at, pair): (usize, &str)| {
            let (name, value) = pair.split_once('=').ok_or_else(|| wrong(at + 1))?;
            let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| wrong(at + 1))?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong(at + 1))?;
            HeaderValue::from_str(&value).map_err(|_| wrong(at + 1))?;
            Ok((name.as_str().to_owned(), value.into_owned()))
        };
        pairs.enumerate().map(header).collect()
    }

    fn limit(&self) -> Result<Duration, PlanError> {
        const NAME: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
        let Some(text) = self.get(NAME) else { return Ok(DEFAULT_LIMIT) };
        match text.parse() {
            Ok(milliseconds @ 1..) => Ok(Duration::from_millis(milliseconds)),
            _ => Err(PlanError {
                variable: NAME.into(),
                why: format!("'{}' is no number of milliseconds", short(text)),
                hint: "set it to a number such as 10000",
            }),
        }
    }
}

/// Returns the start of a value, for a message.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(pairs: &[(&str, &str)]) -> Result<Option<Plan>, PlanError> {
        Plan::of(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect())
    }

    fn addresses(pairs: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let plan = plan(pairs).unwrap().unwrap();
        (plan.traces.map(|target| target.shown()), plan.metrics.map(|target| target.shown()))
    }

    #[test]
    fn the_help_has_every_variable() {
        let help = include_str!("../help/telemetry.md");
        for name in VARIABLES {
            assert!(help.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn nothing_is_sent_unless_a_variable_says_where() {
        const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(plan(&[]), Ok(None));
        assert_eq!(plan(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), Ok(None));
        assert_eq!(plan(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
        let none = [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")];
        assert_eq!(plan(&[ENDPOINT, none[0], none[1]]), Ok(None));
        assert_eq!(addresses(&[ENDPOINT, none[0]]), (None, Some("http://c:4318/v1/metrics".into())));
    }

    #[test]
    fn an_address_of_its_own_is_taken_as_it_is() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/base/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/x?key=secret");
        let both = |traces: &str, metrics: &str| (Some(traces.into()), Some(metrics.into()));
        assert_eq!(addresses(&[all]), both("https://c/base/v1/traces", "https://c/base/v1/metrics"));
        assert_eq!(addresses(&[all, traces]), both("http://t:1/x", "https://c/base/v1/metrics"));
        assert_eq!(addresses(&[traces]), (Some("http://t:1/x".into()), None));
        let local = Some("http://localhost:4318/v1/traces".into());
        assert_eq!(addresses(&[("OTEL_TRACES_EXPORTER", "otlp")]), (local, None));
    }

    #[test]
    fn headers_are_decoded() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a=b, x-id = 7,");
        let plan = plan(&[endpoint, headers]).unwrap().unwrap();
        let expected = [("authorization", "Bearer a=b"), ("x-id", "7")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(plan.traces.unwrap().headers, HashMap::from(expected));
    }

    #[test]
    fn what_cannot_work_is_refused_without_credentials() {
        let refused = |pairs: &[(&str, &str)]| {
            let mut all = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
            all.extend(pairs);
            plan(&all).unwrap_err().to_string()
        };
        let cases = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "the bridge does not speak 'grpc'"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "the bridge does not speak 'http/json'"),
            ("OTEL_TRACES_EXPORTER", "zipkin", "the bridge has no exporter 'zipkin'"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1s", "'1s' is no number of milliseconds"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "the bridge has no compression 'zstd'"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,secret", "header 2 is malformed"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://u:secret@c/", "the address has a user name"),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "secret",
                "this is no address that begins with http:// or https://",
            ),
        ];
        for (name, value, why) in cases {
            assert_eq!(refused(&[(name, value)]), format!("{name}: {why}"));
        }
    }
}
