//! Our side of the `watch` benchmarks: a pod, an event with a line, and the means to let the head of it in.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use onsale_proto::queue::v1::{
    QueuePolicy, UpdateQueuePolicyRequest, queue_admin_service_client::QueueAdminServiceClient,
};
use tonic::{Request, metadata::MetadataValue, transport::Channel};
use uuid::Uuid;

use super::{
    pod::Pod,
    streams::{Authorize, Wanted},
    world::{Event, World, bearer, subject},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A pod whose event has a line.
pub(crate) struct Ours<'a> {
    world: &'a World,
    pub(crate) pod: Pod,
    pub(crate) event: Event,
}

/// The transactions of one admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// When the first of them was committed, in microseconds of the machine's clock.
    pub(crate) commit_micros: i64,
    /// How many there were.
    pub(crate) transactions: i64,
}

impl<'a> Ours<'a> {
    /// Starts a pod that can hold this many streams and admits up to `batch` at a time.
    pub(crate) async fn start(
        world: &'a World,
        event: Event,
        connections: usize,
        batch: u64,
    ) -> anyhow::Result<Self> {
        let waiting = usize::try_from(event.waiting).context("too many streams")?;
        let per_connection = waiting / connections.max(1) + 16;
        let settings = [
            ("server.streams_max", (waiting + 1_000).to_string()),
            ("server.streams_per_connection_max", per_connection.max(1_000).to_string()),
            // All that an admission lets in is to be one transaction, and so one move.
            ("admission.batch_max", batch.to_string()),
        ];
        Ok(Self { world, pod: Pod::start(world, world.queue(), &settings).await?, event })
    }

    /// Streams of the first so many in line.
    pub(crate) fn wanted(&self, streams: usize, connections: usize) -> Wanted {
        let (issuer, event_id) = (Arc::clone(&self.world.issuer), self.event.event_id);
        let authorize: Authorize = Arc::new(move |number| {
            let seq = u64::try_from(number).unwrap_or_default() + 1;
            bearer(&issuer, &subject(event_id, seq), onsale_proto::auth::v1::Role::Customer)
        });
        Wanted { address: self.pod.address, event_id: event_id.to_string(), streams, connections, authorize }
    }

    /// Lets so many have a turn at a time: the next round admits up to there.
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
        let request = signed(request, &self.world.organizer())?;
        client.update_queue_policy(request).await.context("failed to allow turns")?;
        Ok(())
    }

    /// What Postgres knows about the admission of these turns.
    pub(crate) async fn admission(&self, first_turn: u64, last_turn: u64) -> anyhow::Result<Admission> {
        let number = |turn: u64| i64::try_from(turn).context("too many turns");
        let (first, last) = (number(first_turn)?, number(last_turn)?);
        let row = self
            .world
            .postgres
            .query_one(
                "SELECT count(*), count(DISTINCT xmin::text),
                    (extract(epoch FROM min(pg_xact_commit_timestamp(xmin))) * 1000000)::bigint
                FROM queue.entry WHERE event_id = $1 AND fencing_number BETWEEN $2 AND $3",
                &[&self.event.event_id, &first, &last],
            )
            .await
            .context("failed to ask postgres when it was committed")?;
        let granted: i64 = row.try_get(0)?;
        if granted != last - first + 1 {
            bail!("{granted} of {} turns were granted", last - first + 1);
        }
        let commit_micros: Option<i64> = row.try_get(2)?;
        Ok(Admission {
            commit_micros: commit_micros.context("postgres does not know when it was committed")?,
            transactions: row.try_get(1)?,
        })
    }
}

/// A connection to a pod.
pub(crate) async fn channel(pod: &Pod) -> anyhow::Result<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(pod.url())?.tcp_nodelay(true).timeout(PATIENCE);
    endpoint.connect().await.context("failed to connect to a pod")
}

/// A request of whom this header proves.
pub(crate) fn signed<T>(message: T, authorization: &str) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = authorization.parse().context("a token is no header")?;
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}
