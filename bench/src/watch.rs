//! The benchmarks of `WatchQueue`: memory per open stream, and time from an admission to the last stream's update. Limit: bare
//! tonic with the same messages in the same run.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    bare_watch::BareWatch,
    fanout::{self, Fanout, Memory},
    kernel, pod_to_pod,
    report::{Report, Round, millis},
    streams::{Authorize, StreamOptions, Streams},
    testbed::Testbed,
    watched_pod::WatchedPod,
};

const ROUNDS: usize = 3;
/// Longest time to open all streams, up to two million.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1_200);
/// Longest time for an admission to reach all streams before the benchmark fails.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(120);
/// Files that a process may open besides the connections of its streams.
const OTHER_FILES: u64 = 500;
const MILLION: usize = 1_000_000;

/// Options of `watch-memory` and `watch-fanout`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of open streams
    #[arg(long, default_value_t = 100_000, value_parser = streams)]
    pub(crate) streams: usize,
    /// Number of connections that the streams share
    #[arg(long, default_value_t = 100, value_parser = streams)]
    pub(crate) connections: usize,
}

/// Options of `million`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct MillionOptions {
    /// Number of open streams; use fewer only for a trial
    #[arg(long, default_value_t = MILLION, value_parser = streams)]
    pub(crate) streams: usize,
    /// Number of connections that the streams share
    #[arg(long, default_value_t = 100, value_parser = streams)]
    pub(crate) connections: usize,
}

fn streams(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=2_000_000).contains(&count) => Ok(count),
        _ => Err("must be between 1 and 2,000,000".to_owned()),
    }
}

/// Number of streams and connections, and the course of a measurement.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Streams that each measurement evaluates.
    streams: usize,
    connections: usize,
    rounds: usize,
    /// Idle time before each measurement.
    rest: Duration,
}

impl Plan {
    /// Returns the number of our streams. Customers admitted in one round get no update in the next, so there are more streams
    /// than each measurement evaluates.
    fn ours(self) -> usize {
        self.streams + self.batch() * (self.rounds - 1)
    }

    /// Returns the customers admitted per round: more than 1 % of the line, because smaller steps cause no update far behind.
    fn batch(self) -> usize {
        self.streams / 95 + 1
    }

    fn turns(self, rounds: usize) -> anyhow::Result<u64> {
        u64::try_from(self.batch() * rounds).context("too many turns")
    }

    fn per_connection(self) -> usize {
        self.ours() / self.connections.max(1) + 16
    }

    /// Writes an event with a line and starts a pod for it.
    async fn start(self, testbed: &Testbed) -> anyhow::Result<WatchedPod<'_>> {
        let event = testbed.event(u64::try_from(self.ours()).context("too many streams")?).await?;
        WatchedPod::start(testbed, event, self.connections, self.turns(1)?).await
    }

    /// Returns the options of streams to the bare server, which accepts any token.
    fn bare(self, server: &BareWatch) -> StreamOptions {
        let authorize: Authorize = Arc::new(|_| "Bearer nobody".to_owned());
        StreamOptions {
            address: server.address,
            event_id: uuid::Uuid::nil().to_string(),
            streams: self.streams,
            connections: self.connections,
            authorize,
        }
    }
}

/// Measures the memory per stream, in fresh processes in every round.
pub(crate) async fn memory(options: Options, rest: Duration) -> anyhow::Result<Report> {
    let plan = Plan { streams: options.streams, connections: options.connections, rounds: 1, rest };
    let testbed = Testbed::start().await?;
    let ours = plan.start(&testbed).await?;
    let event = ours.event;
    let message = first_message(&ours, plan).await?;
    ours.pod.stop().await?;
    let (mut rounds, mut detail) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let measure_ours = async || {
            let ours = WatchedPod::start(&testbed, event, plan.connections, plan.turns(1)?).await?;
            let options = ours.stream_options(plan.ours(), plan.connections);
            let (streams, memory) =
                fanout::measure_memory(ours.pod.pid(), &options, OPEN_TIMEOUT, plan.rest).await?;
            streams.close().await;
            ours.pod.stop().await?;
            anyhow::Ok(memory)
        };
        let measure_bare = async || {
            let server = BareWatch::start(&message, plan.per_connection()).await?;
            let options = plan.bare(&server);
            let (streams, memory) =
                fanout::measure_memory(server.pid, &options, OPEN_TIMEOUT, plan.rest).await?;
            streams.close().await;
            server.stop().await?;
            anyhow::Ok(memory)
        };
        // The order alternates, so that a machine that gets slower or faster favors neither side.
        let (ours, bare) = if round % 2 == 0 {
            let ours = Box::pin(measure_ours()).await?;
            (ours, Box::pin(measure_bare()).await?)
        } else {
            let bare = Box::pin(measure_bare()).await?;
            (Box::pin(measure_ours()).await?, bare)
        };
        rounds.push(Round { value: ours.per_stream(), limit: bare.per_stream() });
        detail.push(json!({ "ours": ours.to_json(), "bare": bare.to_json() }));
    }
    let detail = json!({
        "streams": plan.streams, "connections": plan.connections, "message_bytes": message.len(),
        "machine": kernel::machine(), "rounds": detail,
    });
    Ok(Report::new("watch-memory", "bytes/stream", BARE_MEMORY, &rounds, detail))
}

const BARE_MEMORY: &str =
    "resident bytes of bare tonic (small buffers) per open stream with the same messages";
const BARE_FANOUT: &str =
    "a bare tonic broadcast (small buffers) of the same bytes until the last stream got it";

/// Measures the time from an admission to the last stream's update.
pub(crate) async fn fanout(
    options: Options,
    one_connection_each: bool,
    rest: Duration,
) -> anyhow::Result<Report> {
    let mut plan = Plan { streams: options.streams, connections: options.connections, rounds: ROUNDS, rest };
    if one_connection_each {
        let files = kernel::raise_open_files()?;
        let most = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
        // Leaves room for the extra streams of the rounds after the first.
        plan.streams = plan.streams.min(most - most / 40);
        plan.connections = plan.ours();
    }
    let testbed = Testbed::start().await?;
    let both = if one_connection_each {
        // Interleaved sides would need twice as many open files.
        Box::pin(in_turn(&testbed, plan)).await?
    } else {
        Box::pin(interleaved(&testbed, plan)).await?
    };
    let rounds: Vec<Round> = both.rounds();
    let detail = json!({
        "streams": plan.streams, "connections": plan.connections, "one_connection_each": one_connection_each,
        "admitted_per_round": plan.batch(), "message_bytes": both.message_bytes,
        "pod_to_pod": Box::pin(pod_to_pod::measure(&testbed)).await?,
        "machine": kernel::machine(), "rounds": both.to_json(), "metrics": both.metrics,
    });
    Ok(Report::new("watch-fanout", "ms", BARE_FANOUT, &rounds, detail))
}

/// Measures both with a million streams, once.
pub(crate) async fn million(options: MillionOptions, rest: Duration) -> anyhow::Result<Report> {
    let plan = Plan { streams: options.streams, connections: options.connections, rounds: 1, rest };
    let testbed = Testbed::start().await?;
    let both = Box::pin(in_turn(&testbed, plan)).await?;
    let rounds = both.rounds();
    let detail = json!({
        "streams": plan.streams, "connections": plan.connections, "admitted": plan.batch(),
        "message_bytes": both.message_bytes,
        "bytes_per_stream": {
            "ours": both.ours_memory.per_stream(), "bare": both.bare_memory.per_stream(),
            "ratio": both.ours_memory.ratio_to(&both.bare_memory),
        },
        "memory": { "ours": both.ours_memory.to_json(), "bare": both.bare_memory.to_json() },
        "all_updated_within_5_s": rounds.iter().all(|round| round.value <= 5_000.0),
        "machine": kernel::machine(), "rounds": both.to_json(), "metrics": both.metrics,
    });
    Ok(Report::new("million", "ms", BARE_FANOUT, &rounds, detail))
}

/// Results of the fan-out on both sides.
struct FanoutResults {
    ours: Vec<Fanout>,
    bare: Vec<Fanout>,
    ours_memory: Memory,
    bare_memory: Memory,
    message_bytes: usize,
    /// Update metrics of the pod.
    metrics: Value,
}

impl FanoutResults {
    fn rounds(&self) -> Vec<Round> {
        let pairs = self.ours.iter().zip(&self.bare);
        pairs.map(|(ours, bare)| Round { value: millis(ours.last), limit: millis(bare.last) }).collect()
    }

    fn to_json(&self) -> Vec<Value> {
        let pairs = self.ours.iter().zip(&self.bare);
        pairs.map(|(ours, bare)| json!({ "ours": ours.to_json(), "bare": bare.to_json() })).collect()
    }
}

/// Measures both sides in alternation while both keep their streams open.
async fn interleaved(testbed: &Testbed, plan: Plan) -> anyhow::Result<FanoutResults> {
    let ours = plan.start(testbed).await?;
    let options = ours.stream_options(plan.ours(), plan.connections);
    let (mut ours_streams, ours_memory) =
        fanout::measure_memory(ours.pod.pid(), &options, OPEN_TIMEOUT, plan.rest).await?;
    let message = ours_streams.record.sample().context("there is no message to copy")?;
    let mut server = BareWatch::start(&message, plan.per_connection()).await?;
    let options = plan.bare(&server);
    let (mut bare_streams, bare_memory) =
        fanout::measure_memory(server.pid, &options, OPEN_TIMEOUT, plan.rest).await?;
    let (mut ours_rounds, mut bare_rounds) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        if round % 2 == 0 {
            ours_rounds.push(fan_out(&ours, &mut ours_streams, plan, round).await?);
            bare_rounds.push(broadcast(&mut server, &mut bare_streams, plan).await?);
        } else {
            bare_rounds.push(broadcast(&mut server, &mut bare_streams, plan).await?);
            ours_rounds.push(fan_out(&ours, &mut ours_streams, plan, round).await?);
        }
    }
    let metrics = metrics_of(&ours).await?;
    tokio::join!(ours_streams.close(), bare_streams.close());
    server.stop().await?;
    ours.pod.stop().await?;
    let message_bytes = message.len();
    Ok(FanoutResults {
        ours: ours_rounds,
        bare: bare_rounds,
        ours_memory,
        bare_memory,
        message_bytes,
        metrics,
    })
}

/// Measures one side after the other, so that only one side has its streams open.
async fn in_turn(testbed: &Testbed, plan: Plan) -> anyhow::Result<FanoutResults> {
    let ours = plan.start(testbed).await?;
    let options = ours.stream_options(plan.ours(), plan.connections);
    let (mut streams, ours_memory) =
        fanout::measure_memory(ours.pod.pid(), &options, OPEN_TIMEOUT, plan.rest).await?;
    let message = streams.record.sample().context("there is no message to copy")?;
    let mut ours_rounds = Vec::new();
    for round in 0..plan.rounds {
        ours_rounds.push(fan_out(&ours, &mut streams, plan, round).await?);
    }
    let metrics = metrics_of(&ours).await?;
    streams.close().await;
    ours.pod.stop().await?;

    let mut server = BareWatch::start(&message, plan.per_connection()).await?;
    let options = plan.bare(&server);
    let (mut streams, bare_memory) =
        fanout::measure_memory(server.pid, &options, OPEN_TIMEOUT, plan.rest).await?;
    let mut bare_rounds = Vec::new();
    for _ in 0..plan.rounds {
        bare_rounds.push(broadcast(&mut server, &mut streams, plan).await?);
    }
    streams.close().await;
    server.stop().await?;
    let message_bytes = message.len();
    Ok(FanoutResults {
        ours: ours_rounds,
        bare: bare_rounds,
        ours_memory,
        bare_memory,
        message_bytes,
        metrics,
    })
}

/// Admits the head of the line and waits until every stream has its update.
async fn fan_out(
    ours: &WatchedPod<'_>,
    streams: &mut Streams,
    plan: Plan,
    round: usize,
) -> anyhow::Result<Fanout> {
    tokio::time::sleep(plan.rest).await;
    let record = Arc::clone(&streams.record);
    record.begin();
    let (messages, processor) = (record.messages(), ours.pod.processor_time()?);
    ours.allow_turns(plan.turns(round + 1)?).await?;
    let expected = plan.ours() - plan.batch() * round;
    streams
        .until(ARRIVE_TIMEOUT, || record.arrived() >= expected)
        .await
        .with_context(|| format!("the admission reached {} of {expected} streams", record.arrived()))?;
    let processor = ours.pod.processor_time()?.saturating_sub(processor);
    let admission = ours.admission(plan.turns(round)? + 1, plan.turns(round + 1)?).await?;
    Ok(Fanout::new(&record, admission.commit_micros, messages, processor)
        .transactions(admission.transactions))
}

/// Broadcasts in bare tonic and waits until every stream has the message.
async fn broadcast(server: &mut BareWatch, streams: &mut Streams, plan: Plan) -> anyhow::Result<Fanout> {
    tokio::time::sleep(plan.rest).await;
    let record = Arc::clone(&streams.record);
    record.begin();
    let (messages, processor) = (record.messages(), kernel::processor_time(server.pid)?);
    let sent_micros = server.send().await?;
    streams
        .until(ARRIVE_TIMEOUT, || record.arrived() >= plan.streams)
        .await
        .with_context(|| format!("the broadcast reached {} of {} streams", record.arrived(), plan.streams))?;
    let processor = kernel::processor_time(server.pid)?.saturating_sub(processor);
    Ok(Fanout::new(&record, sent_micros, messages, processor))
}

/// Returns the first message of a stream in the middle of the line.
async fn first_message(ours: &WatchedPod<'_>, plan: Plan) -> anyhow::Result<Vec<u8>> {
    let mut options = ours.stream_options(1, 1);
    let authorize = Arc::clone(&options.authorize);
    options.authorize = Arc::new(move |_| authorize(plan.streams / 2));
    let streams = Streams::open(&options, OPEN_TIMEOUT).await?;
    let message = streams.record.sample().context("there is no message to copy")?;
    streams.close().await;
    Ok(message.to_vec())
}

/// Returns the metrics of the pod about updates.
async fn metrics_of(ours: &WatchedPod<'_>) -> anyhow::Result<Value> {
    Ok(json!(ours.pod.metrics().await?.beginning_with("queue_updates_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_admits_over_one_percent_and_leaves_enough_streams() {
        for streams in [1, 99, 2_000, 19_013, 100_000, 1_000_000] {
            let plan = Plan { streams, connections: 10, rounds: 3, rest: Duration::ZERO };
            assert!(plan.batch() * 100 >= plan.ours(), "{streams}");
            assert!(plan.ours() - plan.batch() * 2 >= streams, "{streams}");
        }
    }
}
