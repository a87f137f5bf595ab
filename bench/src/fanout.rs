//! The two measurements of streams: their memory on the server, and the time at which each received an update.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    kernel,
    load::percentile,
    record::Record,
    report::{millis, share},
    streams::{StreamOptions, Streams},
};

/// Streams opened and closed before the first measurement, so that memory allocated once is not counted.
const WARM_UP: usize = 64;
/// Longest wait for resident memory to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Memory has settled after this many checks in a row differ by at most 1/[`QUIET_SHARE`].
const QUIET_CHECKS: usize = 3;
const QUIET_SHARE: u64 = 500;

/// Resident memory of a process in bytes before and after its streams were opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    before: u64,
    after: u64,
    streams: usize,
    /// Time to open all streams.
    opened_in: Duration,
    /// Number of attempts to open a stream that the server refused as busy.
    refused: u64,
    /// Resident bytes of the benchmark process, which holds the client ends of the streams.
    client: u64,
}

impl Memory {
    /// Returns the bytes per stream; 0 if memory shrank.
    pub(crate) fn per_stream(&self) -> f64 {
        share(self.after.saturating_sub(self.before), u64::try_from(self.streams).unwrap_or(u64::MAX))
    }

    /// Returns the ratio of the bytes per stream to those of `other`.
    #[expect(clippy::float_arithmetic, reason = "a ratio is measured, not counted")]
    pub(crate) fn ratio_to(&self, other: &Self) -> f64 {
        self.per_stream() / other.per_stream()
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "resident_before": self.before,
            "resident_after": self.after,
            "bytes_per_stream": self.per_stream().round(),
            "streams": self.streams,
            "opened_in_ms": millis(self.opened_in).round(),
            "refused_at_first": self.refused,
            "client_resident": self.client,
        })
    }
}

/// Opens the streams and measures the memory of the process that serves them before and after.
pub(crate) async fn measure_memory(
    pid: u32,
    options: &StreamOptions,
    timeout: Duration,
    rest: Duration,
) -> anyhow::Result<(Streams, Memory)> {
    let few = StreamOptions {
        streams: WARM_UP.min(options.streams),
        connections: options.connections.min(WARM_UP),
        ..options.clone()
    };
    Streams::open(&few, timeout).await?.close().await;
    tokio::time::sleep(rest).await;
    let before = settled_bytes(pid).await?;
    let begun = tokio::time::Instant::now();
    let streams = Streams::open(options, timeout).await?;
    let opened_in = begun.elapsed();
    tokio::time::sleep(rest).await;
    let after = settled_bytes(pid).await?;
    let client = kernel::resident_bytes(std::process::id())?;
    let refused = streams.record.refused();
    Ok((streams, Memory { before, after, streams: options.streams, opened_in, refused, client }))
}

/// Returns the resident memory after it has settled, or after 30 s.
async fn settled_bytes(pid: u32) -> anyhow::Result<u64> {
    let end = tokio::time::Instant::now() + SETTLE_TIMEOUT;
    let (mut last, mut quiet) = (kernel::resident_bytes(pid)?, 0);
    while quiet < QUIET_CHECKS && tokio::time::Instant::now() < end {
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = kernel::resident_bytes(pid)?;
        quiet = if now.abs_diff(last) <= last / QUIET_SHARE { quiet + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}

/// Times from a change to the update on each stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fanout {
    /// Time until the last stream had the update.
    pub(crate) last: Duration,
    first: Duration,
    p50: Duration,
    p99: Duration,
    /// Number of streams that received the update.
    streams: usize,
    /// Number of messages of any kind on all streams meanwhile.
    messages: u64,
    /// Processor time of the server meanwhile.
    processor: Duration,
    /// Number of transactions that made the change. `None` for the bare server.
    transactions: Option<i64>,
}

impl Fanout {
    /// Evaluates `record` for a change at `begun_micros`, before which `messages` messages had arrived.
    pub(crate) fn new(record: &Record, begun_micros: i64, messages: u64, processor: Duration) -> Self {
        let times: Vec<Duration> =
            record.times_micros().into_iter().map(|micros| since(begun_micros, micros)).collect();
        Self {
            last: times.last().copied().unwrap_or_default(),
            first: times.first().copied().unwrap_or_default(),
            p50: percentile(&times, 50),
            p99: percentile(&times, 99),
            streams: times.len(),
            messages: record.messages().saturating_sub(messages),
            processor,
            transactions: None,
        }
    }

    /// Sets the number of transactions.
    pub(crate) fn transactions(self, count: i64) -> Self {
        Self { transactions: Some(count), ..self }
    }

    pub(crate) fn to_json(self) -> Value {
        let streams = u64::try_from(self.streams).unwrap_or(u64::MAX).max(1);
        json!({
            "last_ms": millis(self.last),
            "first_ms": millis(self.first),
            "p50_ms": millis(self.p50),
            "p99_ms": millis(self.p99),
            "streams": self.streams,
            "messages": self.messages,
            "processor_ms": millis(self.processor),
            "processor_micros_per_update": share(u64::try_from(self.processor.as_micros()).unwrap_or(u64::MAX), streams),
            "transactions": self.transactions,
        })
    }
}

/// Returns the time between two readings of the machine's clock by different processes; zero if the second seems earlier.
fn since(begun_micros: i64, micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros.saturating_sub(begun_micros)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_per_stream_is_never_negative() {
        let memory = |before, after| Memory {
            before,
            after,
            streams: 100,
            opened_in: Duration::ZERO,
            refused: 0,
            client: 0,
        };
        assert_eq!(memory(1_000, 251_000).per_stream(), 2_500.0);
        assert_eq!(memory(1_000, 900).per_stream(), 0.0);
    }

    #[test]
    fn times_count_from_the_commit_and_are_never_negative() {
        assert_eq!(since(1_000, 3_500), Duration::from_micros(2_500));
        assert_eq!(since(1_000, 900), Duration::ZERO);
    }
}
