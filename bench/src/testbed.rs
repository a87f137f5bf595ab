//! Testbed of a benchmark: a Postgres and a Redis Cluster of its own, a stub of Inventory, tokens, and events with lines of any
//! length. All of it is removed when the benchmark ends, also when it is killed.

use std::{fmt::Write as _, pin::pin, sync::Arc, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use futures_util::SinkExt as _;
use onsale_kit::auth::SigningKey;
use onsale_proto::{
    auth::v1::Role,
    inventory::v1::{
        Availability, EventState, GetAvailabilityRequest, GetAvailabilityResponse, SectorAvailability,
        inventory_service_server::{InventoryService, InventoryServiceServer},
    },
};
use onsale_storage::{migrate, postgres::PostgresConfig};
use onsale_testkit::{
    stack::{PostgresServer, PostgresServerConfig, RedisCluster, RedisClusterConfig, process::Scratch},
    tokens::{TestIssuer, identity},
};
use onsale_types::{Clock as _, SystemClock, Timestamp};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_postgres::NoTls;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::pod::Service;

const DATABASE: &str = "bench";
/// Free units that the stub of Inventory reports, so many that they never limit a measurement.
const FREE_UNITS: u32 = 1_000_000_000;
/// Rows per chunk of a COPY.
const COPY_ROWS: u64 = 10_000;
/// Lifetime of a turn: the maximum of a policy, so that no turn expires during a measurement.
const TURN: Duration = Duration::from_secs(7_200);
/// Longest time to write the entries of a line.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Stores, keys and stubs that pods need.
pub(crate) struct Testbed {
    pub(crate) issuer: Arc<TestIssuer>,
    /// Private key that signs turn tokens.
    pub(crate) turns_key: String,
    pub(crate) inventory_url: String,
    pub(crate) postgres: tokio_postgres::Client,
    postgres_server: PostgresServer,
    /// `None` after [`Testbed::kill_redis`].
    redis: Option<RedisCluster>,
    /// Settings and logs of the pods.
    pub(crate) folder: Scratch,
    /// Connections to Postgres and the stub of Inventory.
    _tasks: JoinSet<()>,
}

/// State of all entries of a line.
#[derive(Clone, Copy, Debug)]
enum EntryState {
    Waiting,
    /// All are admitted; their turns expire at `until`.
    Admitted {
        until: Timestamp,
    },
}

/// An event with an open queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) event_id: Uuid,
    /// Number of waiting entries at the start.
    pub(crate) waiting: u64,
}

impl Testbed {
    /// Starts the stores and the stub. Postgres is durable, as in production.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let folder = Scratch::create("bench").context("failed to create a folder")?;
        let config = PostgresServerConfig {
            durable: true,
            // The fan-out is measured from the commit time of a transaction.
            settings: vec!["track_commit_timestamp=on".to_owned(), "max_wal_size=8GB".to_owned()],
            ..PostgresServerConfig::default()
        };
        let (postgres_server, redis) = tokio::try_join!(
            PostgresServer::start(config),
            RedisCluster::start(RedisClusterConfig::default())
        )
        .context("failed to start the stores")?;
        let mut tasks = JoinSet::new();
        let administrator = connect(&postgres_server.url("postgres"), &mut tasks).await?;
        administrator
            .batch_execute(&format!("CREATE DATABASE {DATABASE}"))
            .await
            .context("failed to create a database")?;
        let url = postgres_server.url(DATABASE);
        migrate::run(&PostgresConfig::new(&url, "queue")).await.context("failed to migrate")?;
        let postgres = connect(&url, &mut tasks).await?;
        let inventory_url = serve_inventory(&mut tasks).await?;
        let turns_key = SigningKey::generate().context("failed to create a key")?;
        Ok(Self {
            issuer: Arc::new(TestIssuer::new()),
            turns_key,
            inventory_url,
            postgres,
            postgres_server,
            redis: Some(redis),
            folder,
            _tasks: tasks,
        })
    }

    pub(crate) fn postgres_url(&self) -> String {
        self.postgres_server.url(DATABASE)
    }

    pub(crate) fn redis_urls(&self) -> Vec<String> {
        self.redis.as_ref().map(RedisCluster::urls).unwrap_or_default()
    }

    /// Kills every Redis node, as a power cut would. Running pods keep running.
    pub(crate) async fn kill_redis(&mut self) -> anyhow::Result<()> {
        match self.redis.take() {
            Some(redis) => redis.stop().await.context("failed to stop Redis"),
            None => Ok(()),
        }
    }

    /// Starts a new, empty Redis Cluster if there is none. Pods do not start without Redis.
    pub(crate) async fn ensure_redis(&mut self) -> anyhow::Result<()> {
        if self.redis.is_none() {
            let redis = RedisCluster::start(RedisClusterConfig::default()).await;
            self.redis = Some(redis.context("failed to start Redis")?);
        }
        Ok(())
    }

    /// Returns the specification of a queue pod whose Inventory always has free units.
    pub(crate) fn queue(&self) -> Service<'_> {
        Service::Queue { inventory: &self.inventory_url }
    }

    /// Writes an open queue with `waiting` waiting customers. Its policy admits none until open turns are allowed.
    pub(crate) async fn event(&self, waiting: u64) -> anyhow::Result<Event> {
        let event = Event { event_id: Uuid::now_v7(), waiting };
        self.write_line(event.event_id, waiting, EntryState::Waiting).await?;
        Ok(event)
    }

    /// Writes an open queue of an existing event with `count` admitted customers. Returns the expiry of their turns.
    ///
    /// The rows are those that an admission leaves, without its events for Notification: joins and admissions of a hundred
    /// thousand customers would take minutes, and Queue reads a turn from these rows only.
    pub(crate) async fn turns(&self, event_id: Uuid, count: u64) -> anyhow::Result<Timestamp> {
        let until =
            SystemClock.now().checked_add(TURN).context("the system clock is too far in the future")?;
        self.write_line(event_id, count, EntryState::Admitted { until }).await?;
        Ok(until)
    }

    async fn write_line(&self, event_id: Uuid, entries: u64, state: EntryState) -> anyhow::Result<()> {
        let organizer_id = identity("organizer").organizer_id().as_uuid();
        let count = i64::try_from(entries).context("too many entries")?;
        self.postgres
            .execute(
                "INSERT INTO queue.queue (event_id, organizer_id, created_revision, life_revision, is_active, state,
                    open_time, admissions_per_minute, open_turns_max, turn_seconds, idle_seconds, waiting_max)
                VALUES ($1, $2, 1, 2, true, 'OPEN', now() - interval '1 hour', 1000000, 0, 7200, 86400, 100000000)",
                &[&event_id, &organizer_id],
            )
            .await
            .context("failed to write a queue")?;
        self.postgres
            .execute(
                "INSERT INTO queue.line (event_id, revision, last_seq, waiting_count, last_admitted_seq,
                    last_fencing_number, open_turn_count, bucket_time)
                VALUES ($1, 1, $2, $2::bigint - $3::bigint, $3, $3, $3, now() - interval '1 hour')",
                &[&event_id, &count, &if matches!(state, EntryState::Waiting) { 0 } else { count }],
            )
            .await
            .context("failed to write a line")?;
        tokio::time::timeout(TIMEOUT, self.write_entries(event_id, entries, state))
            .await
            .with_context(|| format!("entries were not written in {} s", TIMEOUT.as_secs()))?
    }

    async fn write_entries(&self, event_id: Uuid, entries: u64, state: EntryState) -> anyhow::Result<()> {
        let failed = "failed to write entries";
        let copy = "COPY queue.entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name,
            avatar_url, request_id, fingerprint, start_position, fencing_number, grant_time, expire_time) FROM STDIN";
        let mut sink = pin!(self.postgres.copy_in::<_, Bytes>(copy).await.context(failed)?);
        let mut seq = 0;
        while seq < entries {
            let last = entries.min(seq.saturating_add(COPY_ROWS));
            sink.send(rows(event_id, seq + 1, last, state)).await.context(failed)?;
            seq = last;
        }
        sink.finish().await.context(failed)?;
        // The planner needs statistics, as in a live database. An empty table is not analyzed: Postgres would plan statements
        // for an empty table until the next analysis.
        if entries == 0 {
            return Ok(());
        }
        self.postgres.batch_execute("ANALYZE queue.entry").await.context(failed)
    }

    /// Returns the `authorization` header of the customer with this number in the line of an event.
    pub(crate) fn customer(&self, event: Uuid, seq: u64) -> String {
        bearer(&self.issuer, &subject(event, seq), Role::Customer)
    }

    /// Returns the `authorization` header of the organizer of all events.
    pub(crate) fn organizer(&self) -> String {
        bearer(&self.issuer, "organizer", Role::Organizer)
    }
}

/// Returns an `authorization` header.
pub(crate) fn bearer(issuer: &TestIssuer, subject: &str, role: Role) -> String {
    format!("Bearer {}", issuer.token_for(subject, &[role]))
}

/// Returns the token subject of the customer with this number in the line of an event.
pub(crate) fn subject(event: Uuid, seq: u64) -> String {
    format!("{}-{seq}", event.simple())
}

/// Returns the id of the entry with this number in the line of an event.
pub(crate) fn entry_id(event: Uuid, seq: u64) -> Uuid {
    Uuid::from_u128(event.as_u128().wrapping_add(u128::from(seq)))
}

/// Returns rows of the table `entry` in the text format of COPY.
fn rows(event_id: Uuid, first: u64, last: u64, state: EntryState) -> Bytes {
    let mut text = String::new();
    for seq in first..=last {
        let customer_id = identity(&subject(event_id, seq)).customer_id().as_uuid();
        let (entry_id, request_id) = (entry_id(event_id, seq), Uuid::new_v4());
        let (state_name, turn) = match state {
            EntryState::Waiting => ("WAITING", "\\N\t\\N\t\\N".to_owned()),
            EntryState::Admitted { until } => ("ADMITTED", format!("{seq}\tnow\t{until}")),
        };
        let _ = writeln!(
            text,
            "{entry_id}\t{event_id}\t{customer_id}\t{seq}\t{state_name}\t1\tnow\t\t\t{request_id}\t{request_id}\t{seq}\t{turn}"
        );
    }
    Bytes::from(text)
}

/// Connects to Postgres. The connection's task runs in `tasks`.
pub(crate) async fn connect(url: &str, tasks: &mut JoinSet<()>) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("failed to connect to Postgres")?;
    tasks.spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Stub of Inventory with an unlimited number of free units.
struct EndlessInventory {
    sector_id: String,
}

#[tonic::async_trait]
impl InventoryService for EndlessInventory {
    async fn get_availability(
        &self,
        request: Request<GetAvailabilityRequest>,
    ) -> Result<Response<GetAvailabilityResponse>, Status> {
        let sector = SectorAvailability {
            sector_id: self.sector_id.clone(),
            capacity: FREE_UNITS,
            free_count: FREE_UNITS,
            ..SectorAvailability::default()
        };
        let availability = Availability {
            event_id: request.into_inner().event_id,
            event_state: EventState::OnSale.into(),
            sectors: vec![sector],
            ..Availability::default()
        };
        Ok(Response::new(GetAvailabilityResponse { availability: Some(availability), next_poll_after: None }))
    }
}

async fn serve_inventory(tasks: &mut JoinSet<()>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("failed to listen")?;
    let url = format!("http://{}", listener.local_addr().context("failed to listen")?);
    let inventory = InventoryServiceServer::new(EndlessInventory { sector_id: Uuid::new_v4().to_string() });
    let server = tonic::transport::Server::builder().add_service(inventory);
    tasks.spawn(async move { drop(server.serve_with_incoming(TcpListenerStream::new(listener)).await) });
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_all_columns_and_its_own_customer() {
        let event_id = Uuid::now_v7();
        let admitted = EntryState::Admitted { until: Timestamp::from_secs(60) };
        for (state, turn) in [
            (EntryState::Waiting, ["\\N", "\\N", "\\N"]),
            (admitted, ["2", "now", "1970-01-01T00:01:00.000000Z"]),
        ] {
            let text = String::from_utf8(rows(event_id, 1, 3, state).to_vec()).unwrap();
            let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
            assert!(rows.iter().all(|row| row.len() == 15));
            assert_eq!(rows[1][12..], turn);
            let customers: std::collections::BTreeSet<&str> = rows.iter().map(|row| row[2]).collect();
            assert_eq!(customers.len(), 3);
        }
    }
}
