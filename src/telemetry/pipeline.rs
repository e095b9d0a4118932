//! The way from what is recorded to the collector: built at the first run, flushed at the end.

use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::random_hex;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

use super::instruments::Instruments;
use super::plan::{Plan, Target};
use super::sender::Sender;

/// How long the program waits for a collector when it ends.
const FLUSH_LIMIT: Duration = Duration::from_millis(1_800);

/// What records and exports.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// None if traces are not wanted.
    pub(super) tracer: Option<SdkTracer>,
    /// None if metrics are not wanted.
    pub(super) instruments: Option<Instruments>,
    pub(super) sender: Sender,
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    /// Where it goes, for messages.
    collector: String,
}

impl Pipeline {
    /// Starts the threads that export. What they send goes through `runtime`.
    pub(super) fn start(
        plan: &Plan,
        service: Option<&str>,
        runtime: Handle,
    ) -> Result<Self, ExporterBuildError> {
        let sender = Sender::new(runtime, plan.limit);
        let resource = resource(service);
        let traces =
            plan.traces.as_ref().map(|target| traces(target, plan, &sender, &resource)).transpose()?;
        let metrics =
            plan.metrics.as_ref().map(|target| metrics(target, plan, &sender, &resource)).transpose()?;
        let scope =
            || InstrumentationScope::builder("codebridge").with_version(env!("CARGO_PKG_VERSION")).build();
        let collector = plan.traces.as_ref().or(plan.metrics.as_ref()).map(Target::shown).unwrap_or_default();
        Ok(Self {
            tracer: traces.as_ref().map(|provider| provider.tracer_with_scope(scope())),
            instruments: metrics
                .as_ref()
                .map(|provider| Instruments::of(&provider.meter_with_scope(scope()))),
            sender,
            traces,
            metrics,
            collector,
        })
    }

    /// Sends what is left and stops, or gives up after the limit.
    pub(super) async fn close(&self) {
        // The SDK blocks, some of it without a limit: threads that it still holds end with the process.
        let traces = self
            .traces
            .clone()
            .map(|provider| spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT)));
        let metrics = self.metrics.clone().map(|provider| spawn_blocking(move || provider.shutdown()));
        self.wait(both(traces, metrics)).await;
    }

    /// Sends what there is; returns why the collector did not take it.
    pub(super) async fn check(&self) -> Option<String> {
        let traces = self.traces.clone().map(|provider| spawn_blocking(move || provider.force_flush()));
        let metrics = self.metrics.clone().map(|provider| spawn_blocking(move || provider.force_flush()));
        match self.wait(both(traces, metrics)).await {
            true => self.sender.last_error(),
            false => Some(self.late()),
        }
    }

    async fn wait(&self, sent: impl Future<Output = ()>) -> bool {
        let in_time = tokio::time::timeout(FLUSH_LIMIT, sent).await.is_ok();
        if !in_time {
            let hint = "check that it is reachable, or set OTEL_SDK_DISABLED=true";
            self.sender.warn(&self.collector, &self.late(), hint);
        }
        in_time
    }

    fn late(&self) -> String {
        format!("it did not answer within {FLUSH_LIMIT:?}")
    }
}

/// Waits for what there is of two tasks. Failures were warned about when they happened.
async fn both<A, B>(first: Option<JoinHandle<A>>, second: Option<JoinHandle<B>>) {
    if let Some(first) = first {
        let _ = first.await;
    }
    if let Some(second) = second {
        let _ = second.await;
    }
}

/// Returns what the telemetry is about: `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`, and the version.
fn resource(service: Option<&str>) -> Resource {
    let own = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        // Bridges on one machine count for themselves.
        .with_attribute(KeyValue::new("service.instance.id", random_hex::<16>()))
        .with_service_name("codebridge")
        // What the user sets wins.
        .with_detector(Box::new(EnvResourceDetector::new()));
    match service {
        Some(name) => own.with_service_name(name.to_owned()).build(),
        None => own.build(),
    }
}

/// Sets where an exporter sends to, and through what.
fn sending<B: WithHttpConfig + WithExportConfig>(
    exporter: B,
    target: &Target,
    plan: &Plan,
    sender: &Sender,
) -> B {
    exporter
        .with_shared_http_client(Arc::new(sender.clone()) as Arc<dyn HttpClient>)
        .with_retry_policy(RetryPolicy::disabled())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(target.endpoint.to_string())
        .with_headers(target.headers.clone())
        .with_timeout(plan.limit)
}

fn traces(
    target: &Target,
    plan: &Plan,
    sender: &Sender,
    resource: &Resource,
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = sending(SpanExporter::builder().with_http(), target, plan, sender).build()?;
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.clone()).build())
}

fn metrics(
    target: &Target,
    plan: &Plan,
    sender: &Sender,
    resource: &Resource,
) -> Result<SdkMeterProvider, ExporterBuildError> {
    let exporter = sending(MetricExporter::builder().with_http(), target, plan, sender).build()?;
    Ok(SdkMeterProvider::builder().with_periodic_exporter(exporter).with_resource(resource.clone()).build())
}
