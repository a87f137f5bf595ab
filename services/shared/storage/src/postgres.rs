//! Client of Postgres: a bounded pool, cached statements, and transactions that are retried after lost races and end at
//! the caller's deadline.
//!
//! It must never return a connection with an open transaction or statement to the pool, never retry work that may have
//! been committed, and never report a commit that did not happen.

mod config;
mod connection;
mod copy;
mod error;
mod metrics;
pub mod row;
mod transaction;

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts};
use onsale_kit::backoff::{Backoff, BackoffConfig, Retry, retry};
use onsale_kit::deadline::Deadline;
use tokio_postgres::NoTls;

pub use config::PostgresConfig;
pub use copy::CopyRows;
pub use error::{Error, column};
pub use tokio_postgres::{
    Row,
    types::{Json, ToSql, Type},
};
pub use transaction::{Isolation, Transaction};

use connection::Connection;

/// Minimum time left to start a statement; with less, the reply could not arrive in time.
const BUDGET_MIN: Duration = Duration::from_millis(5);

/// Retries after serialization failures. The waits are short, like the winners' locks.
const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(5),
    max: Duration::from_millis(200),
    multiplier: 2,
    attempts_max: 8,
};

/// Parameters of a statement.
pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Pool of one service's schema. Clones share it.
#[derive(Clone, Debug)]
pub struct Postgres {
    pool: Pool,
    config: PostgresConfig,
}

impl Postgres {
    /// Creates the pool and checks that the database answers.
    pub async fn connect(config: &PostgresConfig) -> Result<Self, Error> {
        let postgres = Self::lazy(config)?;
        postgres.check().await?;
        Ok(postgres)
    }

    /// Creates the pool without connecting. The first use connects.
    pub fn lazy(config: &PostgresConfig) -> Result<Self, Error> {
        metrics::describe();
        let manager = Manager::from_config(
            config.connection()?,
            NoTls,
            // `Connection` detects broken sessions itself; a check before every use would cost a round trip.
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(config.pool_max)
            // The most recently used session has the most cached statements, and few sessions keep the CPU caches warm.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|source| Error::Unavailable { label: "pool", source: source.into() })?;
        Ok(Self { pool, config: config.clone() })
    }

    /// Returns the settings of this client.
    #[must_use]
    pub fn config(&self) -> &PostgresConfig {
        &self.config
    }

    /// Checks that the database answers, for readiness.
    pub async fn check(&self) -> Result<(), Error> {
        self.query_one("check", "SELECT 1", &[]).await.map(drop)
    }

    /// Runs `work` in one transaction at READ COMMITTED; see [`Postgres::transaction_at`].
    pub async fn transaction<T, E, F>(
        &self,
        label: &'static str,
        work: impl Fn(Transaction) -> F,
    ) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        self.transaction_at(Isolation::ReadCommitted, label, work).await
    }

    /// Runs `work` in one transaction: commits if it returns `Ok`, else rolls back. Restarts the transaction if
    /// Postgres reports a lost race (40001, 40P01) or the connection breaks before the commit was sent. So `work` may
    /// run several times and must have no effect outside of the transaction.
    ///
    /// All attempts together end at the deadline of the running call, or after `call_timeout` if there is none.
    /// Dropping the future rolls back.
    pub async fn transaction_at<T, E, F>(
        &self,
        isolation: Isolation,
        label: &'static str,
        work: impl Fn(Transaction) -> F,
    ) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        let deadline = self.deadline();
        let mut backoff = Backoff::new(RETRY);
        let mut timer = metrics::CallTimer::start(label);
        loop {
            let failure = match transaction::attempt(self, isolation, label, deadline, &work).await {
                Ok(value) => {
                    timer.succeeded();
                    return Ok(value);
                }
                Err(failure) => failure,
            };
            let delay = if failure.repeatable { backoff.next_delay() } else { None };
            match delay {
                Some(delay) if delay + BUDGET_MIN < deadline.remaining() => {
                    metrics::retried(label);
                    tokio::time::sleep(delay).await;
                }
                Some(_) | None => return Err(failure.error),
            }
        }
    }

    /// Runs one statement and returns its rows. If the connection breaks, the statement runs again on another one, so
    /// it must be a read or an idempotent write. `sql` is static because each connection prepares it once and caches
    /// it.
    pub async fn query(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.single(label, |connection| async move { connection.query(label, sql, parameters).await }).await
    }

    /// Like [`Postgres::query`], for exactly one row.
    pub async fn query_one(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Row, Error> {
        error::exactly_one(label, self.query(label, sql, parameters).await?)
    }

    /// Like [`Postgres::query`], for at most one row.
    pub async fn query_opt(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        error::at_most_one(label, self.query(label, sql, parameters).await?)
    }

    /// Runs one statement and returns the number of affected rows. If the connection breaks while it runs, its effect
    /// is unknown and the error is [`Error::CommitUnknown`].
    pub async fn execute(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        self.single(label, |connection| async move {
            let statement = connection.prepare(label, sql).await?;
            connection.execute_prepared(label, &statement, parameters).await.map_err(error::of_autocommit)
        })
        .await
    }

    /// Runs one statement on a pooled connection. Retries failures without effect until the deadline.
    async fn single<T, F>(&self, label: &'static str, statement: impl Fn(Connection) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = self.deadline();
        let mut timer = metrics::CallTimer::start(label);
        // Boxed: a bounded future holds the work twice, and callers hold many of these.
        let attempt = || Box::pin(async { statement(self.acquire(label, deadline).await?).await });
        let bounded = || async {
            deadline.bound(attempt()).await.unwrap_or(Err(Error::Timeout { label, source: None }))
        };
        let verdict = |error: &Error| if error.is_without_effect() { Retry::Later } else { Retry::Never };
        let result = retry(deadline, Backoff::new(RETRY), verdict, bounded).await?;
        timer.succeeded();
        Ok(result)
    }

    fn deadline(&self) -> Deadline {
        // A call's deadline may exceed `call_timeout`: some handlers and migrations need more time.
        Deadline::current().unwrap_or_else(|| Deadline::after(self.config.call_timeout))
    }

    /// Returns a pooled connection for exclusive use, before `deadline`.
    async fn acquire(&self, label: &'static str, deadline: Deadline) -> Result<Connection, Error> {
        let remaining = deadline.remaining();
        if remaining < BUDGET_MIN {
            return Err(Error::Timeout { label, source: None });
        }
        let timeouts = Timeouts {
            wait: Some(self.config.acquire_timeout.min(remaining)),
            create: Some(self.config.connect_timeout.min(remaining)),
            recycle: None,
        };
        let object = self.pool.timeout_get(&timeouts).await;
        metrics::pool(&self.config.schema, &self.pool.status());
        object.map(Connection::new).map_err(|source| error::of_pool(label, source))
    }
}
