//! W3C trace context: which trace the running call belongs to, how it comes in and how it goes out.
//!
//! A call has a context even when no traces are exported: log lines of all services then still share a trace id, and
//! a trace begun by somebody else passes through unbroken.

use std::{
    fmt,
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header, and the name of the field in an event's envelope.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Whether spans go anywhere. When not, calls are spared the cost of building them.
static EXPORTING: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    static CURRENT: CallContext;
}

/// A place in a trace: what `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: TraceId,
    span_id: SpanId,
    sampled: bool,
}

impl TraceContext {
    /// The begin of a new trace. It is kept or not as the exporter decides.
    #[must_use]
    pub fn root() -> Self {
        let trace_id = TraceId::from(rand::random::<u128>().max(1));
        Self { trace_id, span_id: SpanId::from(random_span_id()), sampled: false }
    }

    /// A new place in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span_id: SpanId::from(random_span_id()), ..self }
    }

    /// Reads `traceparent`. A later version is read as far as this one knows it, as the standard asks.
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

/// As in the header.
impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// What log lines of a call are marked with.
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    /// Its place in its trace.
    pub trace: TraceContext,
    /// What it is: a method's path, or a worker's name.
    pub name: &'static str,
}

impl CallContext {
    /// The context of the running call or job.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|context| *context).ok()
    }

    /// Runs `work` in this context.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }
}

/// The context a request came with.
#[must_use]
pub fn extract(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT)?.to_str().ok().and_then(TraceContext::parse)
}

/// Puts the current context into the headers of an outgoing request; nothing outside of a call.
pub fn inject(headers: &mut HeaderMap) {
    let value = current_traceparent().and_then(|traceparent| HeaderValue::try_from(traceparent).ok());
    if let Some(value) = value {
        headers.insert(TRACEPARENT, value);
    }
}

/// The current context as text, for an event's envelope. None outside of a call.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    current().map(|context| context.to_string())
}

/// The current place in a trace: that of the innermost span when spans are exported, else that of the call.
#[must_use]
pub fn current() -> Option<TraceContext> {
    let of_span = if is_exporting() { of_span(&tracing::Span::current()) } else { None };
    of_span.or_else(|| CallContext::current().map(|call| call.trace))
}

/// Makes `span` a part of the trace the caller is in, and answers where in the trace it is.
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
