//! Opens the stores of a service: migrates its schema, creates both clients, adds the readiness check, and starts the
//! election and the outbox relay.

use std::{future::Future, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig, Retry, retry},
    deadline::Deadline,
    error::Chain,
    server::Chassis,
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

/// Maximum time that a starting service waits for its stores. In a cluster that starts as a whole, they may come up
/// last.
const OPEN_TIME_MAX: Duration = Duration::from_secs(60);
const OPEN_RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: 100,
};

/// Name of the lease whose holder runs the service's relay.
const RELAY_LEASE: &str = "outbox-relay";

/// Section `[stores]` of a service's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoresConfig {
    /// Pool and limits of the service's schema.
    pub postgres: PostgresConfig,
    /// Connection settings of the Redis Cluster.
    pub redis: RedisConfig,
    /// Timing of leader elections.
    pub lease: LeaseConfig,
    /// Timing and limits of the outbox relay.
    pub relay: RelayConfig,
}

impl StoresConfig {
    /// Returns the source and text of the section's defaults, for a service's `SHARED_DEFAULTS`.
    pub const DEFAULTS: (&'static str, &'static str) =
        ("the storage crate's config.default.toml", include_str!("../config.default.toml"));
}

/// Stores of one service. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Stores {
    /// Pool of the service's schema.
    pub postgres: Postgres,
    /// Client of the Redis Cluster.
    pub redis: Redis,
    /// Outbox for the service's events.
    pub outbox: Outbox,
    /// Leader election among the service's processes.
    pub election: Election,
}

/// An error that prevents the stores from opening.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The schema could not be migrated.
    #[error("failed to migrate the schema")]
    Migrate(#[source] migrate::Error),
    /// The Postgres settings are invalid.
    #[error("failed to open postgres")]
    Postgres(#[source] postgres::Error),
    /// The Redis settings are invalid, or no node answered within 60 s.
    #[error("failed to open redis")]
    Redis(#[source] redis::Error),
    /// The relay's settings are invalid.
    #[error("failed to start the relay")]
    Relay(#[source] messaging::Error),
    /// The lease settings are invalid.
    #[error("failed to start the election")]
    Lease(#[source] lease::Error),
}

impl Stores {
    /// Opens the stores for the service of `chassis`. Waits up to 60 s for both servers, migrates, adds a readiness
    /// check for Postgres, and starts the outbox relay and the deletion of old idempotency answers.
    ///
    /// Redis has no readiness check: without Redis a service is slower, but a restart would not help.
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

    /// Creates a consumer of `P`'s topic. The service's name replaces the group in `config`.
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

/// Returns true if a later attempt may succeed. Invalid settings and diverging migration files do not change by
/// waiting.
fn is_transient_migration_error(error: &migrate::Error) -> bool {
    !matches!(error, migrate::Error::Config { .. } | migrate::Error::Refused { .. })
}

/// Repeats `attempt` until it succeeds, fails permanently, or `deadline` passes.
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
        tracing::warn!(store, error = %Chain(error), "store unavailable, retrying");
        Retry::Later
    };
    retry(deadline, Backoff::new(OPEN_RETRY), verdict, attempt).await
}
