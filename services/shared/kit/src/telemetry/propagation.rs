//! W3C trace context of the running call: how it arrives and how it is passed on.
//!
//! A call has a context even if no traces are exported: the log lines of all services then still share a trace id, and a
//! caller's trace passes through unbroken.

use std::{
    fmt,
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Set if spans are exported. Otherwise calls do not build them.
static EXPORTING: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    static CURRENT: CallContext;
}

/// A position in a trace: the content of `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: TraceId,
    span_id: SpanId,
    sampled: bool,
}

impl TraceContext {
    /// Starts a new trace. Its sampled flag is off; the exporter makes its own decision.
    #[must_use]
    pub fn root() -> Self {
        let trace_id = TraceId::from(rand::random::<u128>().max(1));
        Self { trace_id, span_id: SpanId::from(random_span_id()), sampled: false }
    }

    /// Returns a new position in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span_id: SpanId::from(random_span_id()), ..self }
    }

    /// Parses `traceparent`. Fields that a later version adds are ignored, as the standard demands.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let is_hex = |part: &str, digits: usize| {
            part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let mut parts = traceparent.split('-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_version_known = version == "00";
        if !is_hex(version, 2) || version == "ff" || (is_version_known && parts.next().is_some()) {
            return None;
        }
        if !is_hex(trace_id, 32) || !is_hex(span_id, 16) || !is_hex(flags, 2) {
            return None;
        }
        let context = Self {
            trace_id: TraceId::from_hex(trace_id).ok()?,
            span_id: SpanId::from_hex(span_id).ok()?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        let is_valid = context.trace_id != TraceId::INVALID && context.span_id != SpanId::INVALID;
        is_valid.then_some(context)
    }

    /// The id that all calls of a trace share.
    #[must_use]
    pub fn trace_id(&self) -> impl fmt::Display + use<> {
        self.trace_id
    }

    fn of_span(context: &SpanContext) -> Option<Self> {
        context.is_valid().then(|| Self {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            sampled: context.is_sampled(),
        })
    }

    fn to_remote(self) -> opentelemetry::Context {
        let flags = TraceFlags::default().with_sampled(self.sampled);
        let remote = SpanContext::new(self.trace_id, self.span_id, flags, true, TraceState::default());
        opentelemetry::Context::new().with_remote_span_context(remote)
    }
}

/// Formats the context as the value of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// The trace and name that mark the log lines of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    /// The call's position in its trace.
    pub trace: TraceContext,
    /// A method's path, or a worker's name.
    pub name: &'static str,
}

impl CallContext {
    /// Returns the context of the running call or job, `None` outside of one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|context| *context).ok()
    }

    /// Runs `work` in this context.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }
}

/// Reads a request's trace context. `None` if the header is missing or malformed.
#[must_use]
pub fn extract(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT)?.to_str().ok().and_then(TraceContext::parse)
}

/// Adds the current context to the headers of an outgoing request. Does nothing outside of a call.
pub fn inject(headers: &mut HeaderMap) {
    let value = current_traceparent().and_then(|traceparent| HeaderValue::try_from(traceparent).ok());
    if let Some(value) = value {
        headers.insert(TRACEPARENT, value);
    }
}

/// Returns the current context as the text for an event's envelope, `None` outside of a call.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    current().map(|context| context.to_string())
}

/// Returns the innermost span's position if spans are exported, else the running call's.
fn current() -> Option<TraceContext> {
    let of_span = if is_exporting() { of_span(&tracing::Span::current()) } else { None };
    of_span.or_else(|| CallContext::current().map(|call| call.trace))
}

/// Makes `span` a child of `parent` (or a root without one) and returns its position in the trace.
pub fn join_trace(span: &tracing::Span, parent: Option<TraceContext>) -> TraceContext {
    if is_exporting() {
        if let Some(parent) = parent
            && let Err(error) = span.set_parent(parent.to_remote())
        {
            tracing::debug!(%error, "failed to join the caller's trace");
        }
        if let Some(context) = of_span(span) {
            return context;
        }
    }
    parent.map_or_else(TraceContext::root, TraceContext::child)
}

pub(crate) fn is_exporting() -> bool {
    EXPORTING.load(Ordering::Relaxed)
}

pub(super) fn set_exporting(exporting: bool) {
    EXPORTING.store(exporting, Ordering::Relaxed);
}

fn of_span(span: &tracing::Span) -> Option<TraceContext> {
    TraceContext::of_span(span.context().span().span_context())
}

fn random_span_id() -> u64 {
    rand::random::<u64>().max(1)
}
