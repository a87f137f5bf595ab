//! Format of log lines: tracing's own, plus the trace id and name of the running call.
//!
//! Both are formatted with the line instead of at the start of the call, because most calls log nothing.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{self, Format, Full, Writer},
    },
    registry::LookupSpan,
};

use super::propagation::CallContext;

/// Text lines for a terminal.
#[derive(Default)]
pub(super) struct Human(Format<Full>);

impl<S, N> FormatEvent<S, N> for Human
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(call) = CallContext::current() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{} trace_id={} call={}", line.trim_end(), call.trace.trace_id(), call.name)
    }
}

/// One JSON object per line.
pub(super) struct Json(Format<format::Json>);

impl Default for Json {
    fn default() -> Self {
        // Fields of the event at the top level, and those of the call's span in the object `span`.
        Self(Format::default().json().flatten_event(true).with_current_span(true).with_span_list(false))
    }
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(call) = CallContext::current() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        // Needs no escaping: the trace id is hex digits, and the name comes from the contract or the code.
        let rest = line.strip_prefix('{').unwrap_or(&line);
        write!(writer, "{{\"trace_id\":\"{}\",\"call\":\"{}\",{rest}", call.trace.trace_id(), call.name)
    }
}
