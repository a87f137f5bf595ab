//! Time from a change on one queue pod to its update on a stream of another pod.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use onsale_proto::queue::v1::{
    LeaveQueueRequest, WatchQueueRequest, WatchQueueResponse, queue_service_client::QueueServiceClient,
    queue_update::Update,
};
use serde_json::{Value, json};
use tonic::{Streaming, transport::Channel};
use uuid::Uuid;

use crate::{
    load::percentile,
    pod::Pod,
    report::millis,
    testbed::{Event, Testbed},
    watched_pod::{channel, signed},
};

/// Events, each with a line of [`BEFORE`] + 1 customers. Only near the front does every step cause an update, so the lines are
/// short.
const EVENTS: u64 = 3;
const BEFORE: u64 = 70;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Lets one customer after the other leave through one pod while the last in line watches through another.
pub(crate) async fn measure(testbed: &Testbed) -> anyhow::Result<Value> {
    let here = Pod::start(testbed, testbed.queue(), &[]).await?;
    let there = Pod::start(testbed, testbed.queue(), &[]).await?;
    let mut leaver = QueueServiceClient::new(channel(&here).await?);
    let mut watcher = QueueServiceClient::new(watching(&there).await?);
    let (mut from_call, mut from_answer) = (Vec::new(), Vec::new());
    for _ in 0..EVENTS {
        let event = testbed.event(BEFORE + 1).await?;
        let mut stream = watch(&mut watcher, testbed, event).await?;
        wait_for(&mut stream, BEFORE + 1).await?;
        for seq in 1..=BEFORE {
            let request = LeaveQueueRequest {
                request_id: Uuid::now_v7().to_string(),
                event_id: event.event_id.to_string(),
            };
            let request = signed(request, &testbed.customer(event.event_id, seq))?;
            let begun = Instant::now();
            leaver.leave_queue(request).await.context("LeaveQueue failed")?;
            let answered = Instant::now();
            let seen = wait_for(&mut stream, BEFORE + 1 - seq).await?;
            from_call.push(seen.saturating_duration_since(begun));
            // Zero if the update arrived before the response was read.
            from_answer.push(seen.saturating_duration_since(answered));
        }
    }
    here.stop().await?;
    there.stop().await?;
    from_call.sort_unstable();
    from_answer.sort_unstable();
    let to_json = |times: &[Duration]| json!({ "p50_ms": millis(percentile(times, 50)), "p99_ms": millis(percentile(times, 99)) });
    Ok(json!({
        "samples": from_call.len(),
        "from_the_call": to_json(&from_call),
        "from_the_answer": to_json(&from_answer),
    }))
}

/// Like [`channel`], without a call timeout, which would end the stream.
async fn watching(pod: &Pod) -> anyhow::Result<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(pod.url())?.tcp_nodelay(true);
    endpoint.connect().await.context("failed to connect to a pod")
}

async fn watch(
    client: &mut QueueServiceClient<Channel>,
    testbed: &Testbed,
    event: Event,
) -> anyhow::Result<Streaming<WatchQueueResponse>> {
    let request = WatchQueueRequest { event_id: event.event_id.to_string(), ..WatchQueueRequest::default() };
    let request = signed(request, &testbed.customer(event.event_id, event.waiting))?;
    Ok(client.watch_queue(request).await.context("WatchQueue failed")?.into_inner())
}

/// Waits until the stream sends this position and returns the time of the message.
async fn wait_for(stream: &mut Streaming<WatchQueueResponse>, position: u64) -> anyhow::Result<Instant> {
    loop {
        let message = tokio::time::timeout(TIMEOUT, stream.message())
            .await
            .with_context(|| format!("no update with position {position} in {} s", TIMEOUT.as_secs()))?;
        let now = Instant::now();
        let Some(message) = message.context("a stream broke")? else { bail!("a stream ended") };
        if let Some(Update::PositionUpdate(update)) = message.update.and_then(|update| update.update)
            && update.position == position
        {
            return Ok(now);
        }
    }
}
