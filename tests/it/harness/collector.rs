//! A collector for OpenTelemetry of others, rotel, and what it says that it got.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use super::env::TestEnv;
use super::process::{Running, Transcript, collect, eventually, free_port};
use super::suite::ignore;

pub(crate) type Attributes = BTreeMap<String, String>;

/// A running collector.
pub(crate) struct Collector<'a> {
    env: &'a TestEnv,
    port: u16,
    said: Transcript,
    _process: Running,
}

/// A span that it got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) status: String,
    pub(crate) attributes: Attributes,
}

impl Span {
    /// The value of an attribute.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

/// A point of a metric that it got; the count for a histogram.
#[derive(Debug, Clone, Default)]
pub(crate) struct Point {
    pub(crate) metric: String,
    pub(crate) attributes: Attributes,
    pub(crate) value: f64,
}

impl<'a> Collector<'a> {
    /// Starts one.
    pub(crate) fn start(env: &'a TestEnv) -> Self {
        let Some(cache) = std::env::var_os("CODEBRIDGE_TEST_CACHE") else {
            ignore("no collector was prepared, see tests/check")
        };
        let program = Path::new(&cache).join("tools/rotel/rotel/rotel-agent");
        assert!(program.is_file(), "rotel is not prepared: run tests/host/prepare");
        let (port, grpc) = (free_port(), free_port());
        let mut command = env.command(program);
        let addresses = [format!("127.0.0.1:{port}"), format!("127.0.0.1:{grpc}")];
        command.argv.push("start".into());
        for (flag, value) in [
            ("--exporter", "blackhole"),
            ("--debug-log", "traces"),
            ("--debug-log", "metrics"),
            ("--debug-log-verbosity", "detailed"),
            ("--otlp-http-endpoint", &addresses[0]),
            ("--otlp-grpc-endpoint", &addresses[1]),
        ] {
            command.argv.extend([flag, value].map(Into::into));
        }
        let mut process = command.spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::piped());
        let said = Transcript::default();
        collect(process.child.stdout.take().unwrap(), said.clone());
        collect(process.child.stderr.take().unwrap(), process.transcript.clone());
        eventually("the collector serves", env.guard().left(), || {
            assert_eq!(process.child.try_wait().unwrap(), None, "{}", process.transcript.text());
            TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        });
        Self { env, port, said, _process: process }
    }

    /// Its address, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Everything that it says it got.
    pub(crate) fn text(&self) -> String {
        self.said.text()
    }

    /// The spans, when there are that many.
    pub(crate) fn spans(&self, count: usize) -> Vec<Span> {
        eventually("spans", self.env.guard().left(), || {
            Some(spans(&self.text())).filter(|spans| spans.len() >= count)
        })
    }

    /// The points of all metrics, when there is one of this name.
    pub(crate) fn points(&self, awaited: &str) -> Vec<Point> {
        eventually(awaited, self.env.guard().left(), || {
            let points = points(&self.text());
            points.iter().any(|point| point.metric == awaited).then_some(points)
        })
    }
}

/// Splits a line such as `    Name           : x`.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim(), value.trim()))
}

/// Reads a line such as `     -> key: Str(value)`.
fn attribute(line: &str) -> Option<(String, String)> {
    let (key, value) = line.trim_start().strip_prefix("-> ")?.split_once(": ")?;
    let value = value.split_once('(').and_then(|(_, value)| value.strip_suffix(')')).unwrap_or(value);
    Some((key.to_owned(), value.to_owned()))
}

fn spans(text: &str) -> Vec<Span> {
    let blocks = text.split("\nSpan #").skip(1);
    blocks.filter(|block| block.contains("\nAttributes:\n")).map(span).collect()
}

fn span(block: &str) -> Span {
    let mut span = Span::default();
    // What comes after it begins with another heading.
    let block = block.split("\nResource").next().unwrap_or_default();
    for line in block.lines() {
        if let Some((key, value)) = attribute(line) {
            span.attributes.insert(key, value);
            continue;
        }
        let Some((name, value)) = field(line) else { continue };
        let part = match name {
            "Name" => &mut span.name,
            "Kind" => &mut span.kind,
            "Trace ID" => &mut span.trace,
            "ID" => &mut span.id,
            "Parent ID" => &mut span.parent,
            "Status code" => &mut span.status,
            _ => continue,
        };
        *part = value.to_owned();
    }
    span
}

fn points(text: &str) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    let mut metric = String::new();
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix("-> Name: ") {
            metric = name.to_owned();
        } else if line.contains("DataPoints #") {
            points.push(Point { metric: metric.clone(), ..Point::default() });
        } else if line.starts_with("Resource") {
            metric.clear();
        } else if let Some(point) = points.last_mut().filter(|_| !metric.is_empty()) {
            match (attribute(line), field(line)) {
                (Some((key, value)), _) if !["Unit", "DataType"].contains(&key.as_str()) => {
                    point.attributes.insert(key, value);
                }
                (None, Some(("Value" | "Count", value))) => point.value = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
    }
    points
}
