//! What pods need around them: a real Postgres and Redis Cluster of the benchmark's own, an Inventory that has units,
//! people, and events with a line as long as asked for. All of it goes when the benchmark ends, however it does.

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

use super::pod::Service;

const DATABASE: &str = "bench";
/// Units that Inventory says are free: never what limits a measurement.
const FREE_UNITS: u32 = 1_000_000_000;
/// Rows in one piece of a COPY.
const COPY_ROWS: u64 = 10_000;
/// How long a turn lasts: as long as a policy may say, so that none ends while it is measured.
const TURN: Duration = Duration::from_secs(7_200);
/// How long anything of the stores may take that is not a measurement.
const PATIENCE: Duration = Duration::from_secs(600);

/// The stores and everybody else.
pub(crate) struct World {
    pub(crate) issuer: Arc<TestIssuer>,
    /// Signs turns.
    pub(crate) turns_key: String,
    pub(crate) inventory_url: String,
    pub(crate) postgres: tokio_postgres::Client,
    postgres_server: PostgresServer,
    /// None while it is away.
    redis: Option<RedisCluster>,
    /// Settings and logs of the pods.
    pub(crate) folder: Scratch,
    /// The connection to Postgres, and Inventory.
    _tasks: JoinSet<()>,
}

/// Who stands in a line.
#[derive(Clone, Copy, Debug)]
enum Standing {
    Waiting,
    /// All were admitted, from the first on.
    Admitted {
        until: Timestamp,
    },
}

/// An event with an open queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) event_id: Uuid,
    /// Entries that waited when it began.
    pub(crate) waiting: u64,
}

impl World {
    /// Starts it. Everything durable is durable, as in production.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let folder = Scratch::create("bench").context("failed to make a folder")?;
        let config = PostgresServerConfig {
            durable: true,
            // When a transaction was committed is what a fan-out is measured from.
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
            .context("failed to make a database")?;
        let url = postgres_server.url(DATABASE);
        migrate::run(&PostgresConfig::new(&url, "queue")).await.context("failed to migrate")?;
        let postgres = connect(&url, &mut tasks).await?;
        let inventory_url = serve_inventory(&mut tasks).await?;
        let turns_key = SigningKey::generate().context("failed to make a key")?;
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

    /// Ends every Redis node at once, as a power cut would. Pods that run keep running.
    pub(crate) async fn lose_redis(&mut self) -> anyhow::Result<()> {
        match self.redis.take() {
            Some(redis) => redis.stop().await.context("failed to stop redis"),
            None => Ok(()),
        }
    }

    /// Starts a new, empty Redis Cluster if there is none: a pod does not start without.
    pub(crate) async fn have_redis(&mut self) -> anyhow::Result<()> {
        if self.redis.is_none() {
            let redis = RedisCluster::start(RedisClusterConfig::default()).await;
            self.redis = Some(redis.context("failed to start redis")?);
        }
        Ok(())
    }

    /// A queue pod whose Inventory always has units.
    pub(crate) fn queue(&self) -> Service<'_> {
        Service::Queue { inventory: &self.inventory_url }
    }

    /// An open queue in which `waiting` customers wait, and nobody is admitted until open turns are allowed.
    pub(crate) async fn event(&self, waiting: u64) -> anyhow::Result<Event> {
        let event = Event { event_id: Uuid::now_v7(), waiting };
        self.write_line(event.event_id, waiting, Standing::Waiting).await?;
        Ok(event)
    }

    /// An open queue of an event that is there already, in which `count` customers have a turn; answers until when.
    ///
    /// Their entries are written as admission leaves them, without the events that it tells Notification: to let a
    /// hundred thousand join and be admitted takes minutes, and Queue's answer about a turn is read from these rows.
    pub(crate) async fn turns(&self, event_id: Uuid, count: u64) -> anyhow::Result<Timestamp> {
        let until = SystemClock.now().checked_add(TURN).context("the clock is set too far")?;
        self.write_line(event_id, count, Standing::Admitted { until }).await?;
        Ok(until)
    }

    async fn write_line(&self, event_id: Uuid, entries: u64, standing: Standing) -> anyhow::Result<()> {
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
                &[&event_id, &count, &if matches!(standing, Standing::Waiting) { 0 } else { count }],
            )
            .await
            .context("failed to write a line")?;
        tokio::time::timeout(PATIENCE, self.write_entries(event_id, entries, standing))
            .await
            .context("writing entries took too long")?
    }

    async fn write_entries(&self, event_id: Uuid, entries: u64, standing: Standing) -> anyhow::Result<()> {
        let failed = "failed to write entries";
        let copy = "COPY queue.entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name,
            avatar_url, request_id, fingerprint, start_position, fencing_number, grant_time, expire_time) FROM STDIN";
        let mut sink = pin!(self.postgres.copy_in::<_, Bytes>(copy).await.context(failed)?);
        let mut seq = 0;
        while seq < entries {
            let last = entries.min(seq.saturating_add(COPY_ROWS));
            sink.send(rows(event_id, seq + 1, last, standing)).await.context(failed)?;
            seq = last;
        }
        sink.finish().await.context(failed)?;
        // As it would be in a database that lives: the planner must know what is there.
        // Not of an empty table: Postgres would take it for empty until it looks again, and plan its statements accordingly.
        if entries == 0 {
            return Ok(());
        }
        self.postgres.batch_execute("ANALYZE queue.entry").await.context(failed)
    }

    /// The token of whoever has this number in the line of an event, as the value of a header.
    pub(crate) fn customer(&self, event: Uuid, seq: u64) -> String {
        bearer(&self.issuer, &subject(event, seq), Role::Customer)
    }

    /// The token of the organizer of all events.
    pub(crate) fn organizer(&self) -> String {
        bearer(&self.issuer, "organizer", Role::Organizer)
    }
}

/// The value of a header that proves who calls.
pub(crate) fn bearer(issuer: &TestIssuer, subject: &str, role: Role) -> String {
    format!("Bearer {}", issuer.token_for(subject, &[role]))
}

/// Whoever has this number in the line of an event.
pub(crate) fn subject(event: Uuid, seq: u64) -> String {
    format!("{}-{seq}", event.simple())
}

/// The entry that has this number in the line of an event.
pub(crate) fn entry_id(event: Uuid, seq: u64) -> Uuid {
    Uuid::from_u128(event.as_u128().wrapping_add(u128::from(seq)))
}

/// Rows of the table `entry`, in the text form of COPY.
fn rows(event_id: Uuid, first: u64, last: u64, standing: Standing) -> Bytes {
    let mut text = String::new();
    for seq in first..=last {
        let customer_id = identity(&subject(event_id, seq)).customer_id().as_uuid();
        let (entry_id, request_id) = (entry_id(event_id, seq), Uuid::new_v4());
        let (state, turn) = match standing {
            Standing::Waiting => ("WAITING", "\\N\t\\N\t\\N".to_owned()),
            Standing::Admitted { until } => ("ADMITTED", format!("{seq}\tnow\t{until}")),
        };
        let _ = writeln!(
            text,
            "{entry_id}\t{event_id}\t{customer_id}\t{seq}\t{state}\t1\tnow\t\t\t{request_id}\t{request_id}\t{seq}\t{turn}"
        );
    }
    Bytes::from(text)
}

/// Connects; the connection's other half runs in `tasks`.
pub(crate) async fn connect(url: &str, tasks: &mut JoinSet<()>) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("failed to reach postgres")?;
    tasks.spawn(async move { drop(connection.await) });
    Ok(client)
}

/// An Inventory in which nothing is ever short.
struct Plenty {
    sector_id: String,
}

#[tonic::async_trait]
impl InventoryService for Plenty {
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
    let inventory = InventoryServiceServer::new(Plenty { sector_id: Uuid::new_v4().to_string() });
    let server = tonic::transport::Server::builder().add_service(inventory);
    tasks.spawn(async move { drop(server.serve_with_incoming(TcpListenerStream::new(listener)).await) });
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_every_column_and_its_own_customer() {
        let event_id = Uuid::now_v7();
        let admitted = Standing::Admitted { until: Timestamp::from_secs(60) };
        for (standing, turn) in [
            (Standing::Waiting, ["\\N", "\\N", "\\N"]),
            (admitted, ["2", "now", "1970-01-01T00:01:00.000000Z"]),
        ] {
            let text = String::from_utf8(rows(event_id, 1, 3, standing).to_vec()).unwrap();
            let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
            assert!(rows.iter().all(|row| row.len() == 15));
            assert_eq!(rows[1][12..], turn);
            let customers: std::collections::BTreeSet<&str> = rows.iter().map(|row| row[2]).collect();
            assert_eq!(customers.len(), 3);
        }
    }
}
