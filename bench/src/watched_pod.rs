//! Our side of the `watch` benchmarks: a queue pod, an event with a line, and a way to admit the head of the line.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale_proto::queue::v1::{
    QueuePolicy, UpdateQueuePolicyRequest, queue_admin_service_client::QueueAdminServiceClient,
};
use tonic::{Request, metadata::MetadataValue, transport::Channel};
use uuid::Uuid;

use crate::{
    pod::Pod,
    streams::{Authorize, StreamOptions},
    testbed::{Event, Testbed, bearer, subject},
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A queue pod with an event whose line is waiting.
pub(crate) struct WatchedPod<'a> {
    testbed: &'a Testbed,
    pub(crate) pod: Pod,
    pub(crate) event: Event,
}

/// The transactions of one admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Commit time of the first transaction, in microseconds of the machine's clock.
    pub(crate) commit_micros: i64,
    pub(crate) transactions: i64,
}

impl<'a> WatchedPod<'a> {
    /// Starts a pod that accepts a stream of every waiting customer and admits up to `batch` customers at a time.
    pub(crate) async fn start(
        testbed: &'a Testbed,
        event: Event,
        connections: usize,
        batch: u64,
    ) -> anyhow::Result<Self> {
        let waiting = usize::try_from(event.waiting).context("too many streams")?;
        let per_connection = waiting / connections.max(1) + 16;
        let settings = [
            ("server.streams_max", (waiting + 1_000).to_string()),
            ("server.streams_per_connection_max", per_connection.max(1_000).to_string()),
            // One transaction, and so one move of the line, for all customers of an admission.
            ("admission.batch_max", batch.to_string()),
        ];
        Ok(Self { testbed, pod: Pod::start(testbed, testbed.queue(), &settings).await?, event })
    }

    /// Returns the options of streams for the first `streams` customers in line.
    pub(crate) fn stream_options(&self, streams: usize, connections: usize) -> StreamOptions {
        let (issuer, event_id) = (Arc::clone(&self.testbed.issuer), self.event.event_id);
        let authorize: Authorize = Arc::new(move |number| {
            let seq = u64::try_from(number).unwrap_or_default() + 1;
            bearer(&issuer, &subject(event_id, seq), onsale_proto::auth::v1::Role::Customer)
        });
        StreamOptions {
            address: self.pod.address,
            event_id: event_id.to_string(),
            streams,
            connections,
            authorize,
        }
    }

    /// Sets the maximum of open turns. The next admission round admits up to that number.
    pub(crate) async fn allow_turns(&self, open_turns_max: u64) -> anyhow::Result<()> {
        let request = UpdateQueuePolicyRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: self.event.event_id.to_string(),
            policy: Some(QueuePolicy {
                open_turns_max: u32::try_from(open_turns_max).context("too many turns")?,
                ..QueuePolicy::default()
            }),
            update_mask: Some(prost_types::FieldMask { paths: vec!["open_turns_max".to_owned()] }),
        };
        let mut client = QueueAdminServiceClient::new(channel(&self.pod).await?);
        let request = signed(request, &self.testbed.organizer())?;
        client.update_queue_policy(request).await.context("failed to raise the maximum of open turns")?;
        Ok(())
    }

    /// Reads the transactions that granted these turns. Fails unless all of them are granted.
    pub(crate) async fn admission(&self, first_turn: u64, last_turn: u64) -> anyhow::Result<Admission> {
        let number = |turn: u64| i64::try_from(turn).context("too many turns");
        let (first, last) = (number(first_turn)?, number(last_turn)?);
        let row = self
            .testbed
            .postgres
            .query_one(
                "SELECT count(*), count(DISTINCT xmin::text),
                    (extract(epoch FROM min(pg_xact_commit_timestamp(xmin))) * 1000000)::bigint
                FROM queue.entry WHERE event_id = $1 AND fencing_number BETWEEN $2 AND $3",
                &[&self.event.event_id, &first, &last],
            )
            .await
            .context("failed to read the commit time of the admission")?;
        let granted: i64 = row.try_get(0)?;
        if granted != last - first + 1 {
            bail!("{granted} of {} turns were granted", last - first + 1);
        }
        let commit_micros: Option<i64> = row.try_get(2)?;
        Ok(Admission {
            commit_micros: commit_micros.context("Postgres has no commit time of the admission")?,
            transactions: row.try_get(1)?,
        })
    }
}

/// Opens a connection with a call timeout of 30 s to a pod.
pub(crate) async fn channel(pod: &Pod) -> anyhow::Result<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(pod.url())?.tcp_nodelay(true).timeout(TIMEOUT);
    endpoint.connect().await.context("failed to connect to a pod")
}

/// Returns a request with this `authorization` header.
pub(crate) fn signed<T>(message: T, authorization: &str) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = authorization.parse().context("a token is not a valid header")?;
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}
