//! The trace that something belongs to, as W3C Trace Context has it: <https://www.w3.org/TR/trace-context/>.

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
/// Bytes of `tracestate`; a longer one is dropped.
const LONGEST_STATE: usize = 512;
/// Bytes of `traceparent` that are read; those of the first version have 55.
const LONGEST_PARENT: usize = 128;

/// The span that others are children of; none by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TraceContext(Option<SpanContext>);

/// The two fields as somebody sent them.
struct Received<'a> {
    parent: &'a str,
    state: Option<&'a str>,
}

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            PARENT => Some(self.parent),
            STATE => self.state,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![PARENT, STATE]
    }
}

/// The two fields as they are passed on.
#[derive(Default)]
struct Sent {
    parent: Option<String>,
    state: Option<String>,
}

impl Injector for Sent {
    fn set(&mut self, key: &str, value: String) {
        match key {
            PARENT => self.parent = Some(value),
            STATE if !value.is_empty() => self.state = Some(value),
            _ => {}
        }
    }
}

impl TraceContext {
    /// Returns the context of the two fields; an empty one if they are missing or malformed.
    pub fn parse(parent: Option<&str>, state: Option<&str>) -> Self {
        let Some(parent) = parent.filter(|parent| parent.len() <= LONGEST_PARENT) else {
            return Self::default();
        };
        let state = state.filter(|state| state.len() <= LONGEST_STATE);
        let context =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &Received { parent, state });
        Self::of(context.span().span_context().clone())
    }

    /// Returns the values of `traceparent` and `tracestate`; None without a trace.
    pub fn fields(&self) -> Option<(String, Option<String>)> {
        let mut sent = Sent::default();
        TraceContextPropagator::new().inject_context(&self.as_parent(), &mut sent);
        Some((sent.parent?, sent.state))
    }

    pub(super) fn of(span: SpanContext) -> Self {
        Self(Some(span).filter(SpanContext::is_valid))
    }

    /// Returns the context for a child.
    pub(super) fn as_parent(&self) -> Context {
        match &self.0 {
            Some(span) => Context::new().with_remote_span_context(span.clone()),
            None => Context::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_passed_on_as_it_came() {
        let context = TraceContext::parse(Some(SPAN), Some("vendor=1"));
        assert_eq!(context.fields(), Some((SPAN.to_owned(), Some("vendor=1".to_owned()))));
        assert_eq!(TraceContext::parse(Some(SPAN), None).fields(), Some((SPAN.to_owned(), None)));
    }

    #[test]
    fn what_is_malformed_or_too_long_counts_as_none() {
        let long = format!("{SPAN}-{}", "0".repeat(LONGEST_PARENT));
        for bad in ["", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", &long] {
            assert_eq!(TraceContext::parse(Some(bad), None), TraceContext::default(), "{bad}");
        }
        assert_eq!(TraceContext::parse(None, Some("vendor=1")).fields(), None);
        let state = format!("vendor={}", "1".repeat(LONGEST_STATE));
        assert_eq!(TraceContext::parse(Some(SPAN), Some(&state)).fields(), Some((SPAN.to_owned(), None)));
    }
}
