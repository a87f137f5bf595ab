//! Opens the stores of a service, the same way for each: migrates its schema, opens both doors, watches them, and carries
//! its events.

use std::{future::Future, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig, Retry, retry},
    deadline::Deadline,
    error::Chain,
    server::Chassis,
    tasks::Tasks,
};
use onsale_proto::{EventPayload, TOPICS};
use serde::Deserialize;

use crate::{
    idempotency,
    lease::{self, Election, LeaseConfig},
    messaging::{self, Consumer, ConsumerConfig, Handler, Outbox, Relay, RelayConfig},
    migrate,
    postgres::{self, Postgres, PostgresConfig},
    redis::{self, Redis, RedisConfig},
};

/// How long a starting service waits for its stores: in a cluster that comes up as a whole, they may come last.
const OPEN_TIME_MAX: Duration = Duration::from_secs(60);
const OPEN_RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: 100,
};

/// Which of a service's relays works is decided by the lease of this name.
const RELAY_LEASE: &str = "outbox-relay";

/// The section `[stores]` of a service's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoresConfig {
    /// The truth.
    pub postgres: PostgresConfig,
    /// What makes it fast.
    pub redis: RedisConfig,
    /// Who leads.
    pub lease: LeaseConfig,
    /// How events are carried.
    pub relay: RelayConfig,
}

impl StoresConfig {
    /// The defaults of the section, for a service's `SHARED_DEFAULTS`.
    pub const DEFAULTS: (&'static str, &'static str) =
        ("the storage crate's config.default.toml", include_str!("../config.default.toml"));
}

/// A service's stores. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Stores {
    /// The service's schema.
    pub postgres: Postgres,
    /// The Redis Cluster.
    pub redis: Redis,
    /// Where the service's events are written.
    pub outbox: Outbox,
    /// Where the service's processes agree on who leads.
    pub election: Election,
}

/// The stores could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The schema could not be brought up to date.
    #[error("failed to migrate the schema")]
    Migrate(#[source] migrate::Error),
    /// Postgres cannot be used.
    #[error("failed to open postgres")]
    Postgres(#[source] postgres::Error),
    /// Redis cannot be used.
    #[error("failed to open redis")]
    Redis(#[source] redis::Error),
    /// The service's events cannot be carried.
    #[error("failed to start the relay")]
    Relay(#[source] messaging::Error),
    /// Leases cannot be used.
    #[error("failed to begin the election")]
    Lease(#[source] lease::Error),
}

impl Stores {
    /// Opens them for the service of `chassis`: waits for both servers, migrates, adds a readiness check for Postgres,
    /// starts the relay of the service's outbox, and keeps the memory of answered requests small.
    ///
    /// Redis has no readiness check: without it a service is slower, and none that asked for a restart would be faster.
    pub async fn open(config: &StoresConfig, chassis: &Chassis) -> Result<Self, OpenError> {
        let deadline = Deadline::after(OPEN_TIME_MAX);
        let migrated = retry_until(deadline, "postgres", is_transient_migration_error, || {
            migrate::run(&config.postgres)
        });
        migrated.await.map_err(OpenError::Migrate)?;
        let postgres = Postgres::lazy(&config.postgres).map_err(OpenError::Postgres)?;
        config.redis.validate().map_err(OpenError::Redis)?;
        let redis = retry_until(deadline, "redis", |_| true, || Redis::connect(&config.redis));
        let redis = redis.await.map_err(OpenError::Redis)?;
        let keys = redis.keyspace(chassis.service()).map_err(OpenError::Redis)?;
        let election = Election::start(&redis, &postgres, &keys, &config.lease, chassis.tasks())
            .map_err(OpenError::Lease)?;

        let checked = postgres.clone();
        chassis.readiness().add_check("postgres", move || {
            let postgres = checked.clone();
            async move { postgres.check().await.map_err(Into::into) }
        });
        let outbox = Outbox::new(chassis.service(), chassis.clock());
        let stores = Self { postgres, redis, outbox, election };
        stores.start_relay(config.relay.clone(), chassis)?;
        idempotency::start_cleanup(stores.postgres.clone(), chassis.tasks());
        Ok(stores)
    }

    /// Starts a consumer of `P`'s topic in `tasks`, for this service: its name is the group, whatever `config` says.
    pub fn listen<P: EventPayload>(
        &self,
        tasks: &Tasks,
        config: ConsumerConfig,
        handler: impl Handler,
    ) -> Result<(), messaging::Error> {
        let consumer = self.consumer::<P, _>(config, handler)?;
        tasks.spawn(P::TOPIC, consumer.run(tasks.token()));
        Ok(())
    }

    /// Returns a consumer of `P`'s topic for this service.
    pub(crate) fn consumer<P: EventPayload, H: Handler>(
        &self,
        config: ConsumerConfig,
        handler: H,
    ) -> Result<Consumer<H>, messaging::Error> {
        let config = ConsumerConfig { group: self.outbox.source().to_owned(), ..config };
        let (postgres, redis) = (self.postgres.clone(), self.redis.clone());
        Consumer::new::<P>(postgres, redis, self.outbox.clock(), config, handler)
    }

    fn start_relay(&self, config: RelayConfig, chassis: &Chassis) -> Result<(), OpenError> {
        let candidacy = self.election.enter(RELAY_LEASE).map_err(OpenError::Lease)?;
        let relay = Relay::new(self.postgres.clone(), self.redis.clone(), &self.outbox, TOPICS, config)
            .map_err(OpenError::Relay)?;
        relay.start_while(candidacy.into_condition(), chassis.tasks());
        Ok(())
    }
}

/// Whether waiting can help: files that do not fit together, or settings that make no sense, stay as they are.
fn is_transient_migration_error(error: &migrate::Error) -> bool {
    !matches!(error, migrate::Error::Config { .. } | migrate::Error::Refused { .. })
}

/// Repeats `attempt` until it succeeds, fails for good or the time is over.
async fn retry_until<T, E, F>(
    deadline: Deadline,
    store: &'static str,
    is_transient: impl Fn(&E) -> bool,
    attempt: impl FnMut() -> F,
) -> Result<T, E>
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let verdict = |error: &E| {
        if !is_transient(error) {
            return Retry::Never;
        }
        tracing::warn!(store, error = %Chain(error), "store is not there yet, trying again");
        Retry::Later
    };
    retry(deadline, Backoff::new(OPEN_RETRY), verdict, attempt).await
}
