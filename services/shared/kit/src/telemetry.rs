//! Telemetry of the process: log lines, traces and metrics.
//!
//! `kit::run` calls [`Telemetry::init`] once. Log lines carry the trace id and method of their call, traces go to an OTLP
//! endpoint if one is set, and Prometheus reads metrics from the operators' port.

use std::{fmt, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogFormat, TelemetryConfig};

mod log_format;
pub(crate) mod metrics;
pub mod propagation;

/// Time limit of one export of spans. The batch is lost after it; the process does not wait for it.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The telemetry of the process.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// An error that prevents telemetry from starting.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `telemetry.log_filter` cannot be parsed.
    #[error("failed to parse the log filter")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// The exporter refused `telemetry.otlp_endpoint`.
    #[error("failed to set up the export of traces")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// The process has a subscriber already.
    #[error("failed to install the log subscriber")]
    Install(#[source] tracing_subscriber::util::TryInitError),
}

impl Telemetry {
    /// Installs logs, traces and metrics for this process. Needs a tokio runtime if traces are exported.
    pub fn init(service: &'static str, config: &TelemetryConfig) -> Result<Self, TelemetryError> {
        let provider = config.otlp_endpoint.as_deref().map(|endpoint| provider(service, endpoint, config));
        let provider = provider.transpose()?;
        let traces = provider.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("onsale-kit"))
                // Source locations do not help a reader of a trace that spans several services.
                .with_location(false)
                .with_threads(false)
        });
        let logs = tracing_subscriber::fmt::layer();
        let logs = match config.log_format {
            LogFormat::Human => logs.event_format(log_format::Human::default()).boxed(),
            LogFormat::Json => logs.json().event_format(log_format::Json::default()).boxed(),
        };
        tracing_subscriber::registry()
            .with(EnvFilter::try_new(&config.log_filter).map_err(TelemetryError::Filter)?)
            .with(logs)
            .with(traces)
            .try_init()
            .map_err(TelemetryError::Install)?;
        propagation::set_exporting(provider.is_some());
        let _recorder = metrics::handle();
        Ok(Self { provider })
    }

    /// Exports the buffered spans for at most `bound`. Blocks the thread.
    pub fn shutdown(&self, bound: Duration) {
        let Some(provider) = &self.provider else { return };
        if let Err(error) = provider.shutdown_with_timeout(bound) {
            tracing::warn!(error = %error, "failed to export the last spans, they are lost");
        }
    }
}

/// Adds the request's id to the running call's span and log lines.
pub fn record_request_id(id: impl fmt::Display) {
    tracing::Span::current().record("request_id", tracing::field::display(id));
}

/// Adds the id of the call's resource to the running call's span and log lines.
pub fn record_resource_id(id: impl fmt::Display) {
    tracing::Span::current().record("resource_id", tracing::field::display(id));
}

fn provider(
    service: &'static str,
    endpoint: &str,
    config: &TelemetryConfig,
) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(TelemetryError::Exporter)?;
    // Follows the caller's sampling decision, so that a trace is kept or dropped as a whole.
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.trace_sample_ratio)));
    let resource = Resource::builder_empty()
        .with_attribute(KeyValue::new("service.name", service))
        .with_attribute(KeyValue::new("service.namespace", "onsale"))
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource)
        .build())
}
