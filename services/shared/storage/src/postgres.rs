//! The door to Postgres: a bounded pool, cached statements, and transactions that repeat themselves when the
//! database asks for it and end when the caller's time does.
//!
//! It must never hand back a connection that is in the middle of something, never repeat what may have been
//! committed, and never report a commit that was not one.

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

/// With less time left than this nothing is begun: the answer could not arrive in time.
const BUDGET_MIN: Duration = Duration::from_millis(5);

/// How a transaction that lost against another is repeated. The pauses are short, as the winners' locks are.
const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(5),
    max: Duration::from_millis(200),
    multiplier: 2,
    attempts_max: 8,
};

/// A statement's parameters.
pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The pool of one service's schema. Clones share it.
#[derive(Clone, Debug)]
pub struct Postgres {
    pool: Pool,
    config: PostgresConfig,
}

impl Postgres {
    /// Makes the pool and proves that the database answers.
    pub async fn connect(config: &PostgresConfig) -> Result<Self, Error> {
        let postgres = Self::lazy(config)?;
        postgres.check().await?;
        Ok(postgres)
    }

    /// Makes the pool; the first use connects.
    pub fn lazy(config: &PostgresConfig) -> Result<Self, Error> {
        metrics::describe();
        let manager = Manager::from_config(
            config.connection()?,
            NoTls,
            // What is wrong with a connection we know ourselves; asking before every use would cost a round trip.
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(config.pool_max)
            // The session that was used last has what it needs at hand, and few sessions share the processors' caches.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|source| Error::Unavailable { label: "pool", source: source.into() })?;
        Ok(Self { pool, config: config.clone() })
    }

    /// The settings this door was made with.
    #[must_use]
    pub fn config(&self) -> &PostgresConfig {
        &self.config
    }

    /// Whether the database answers: for readiness.
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

    /// Runs `work` in one transaction: committed when it is `Ok`, rolled back when it is not, and begun again when
    /// Postgres says that it lost against another (40001, 40P01) or the connection broke before the commit was sent.
    /// So `work` may run several times and must have no effect outside of the transaction.
    ///
    /// All attempts together end by the deadline of the running call, or after the configured time where there is
    /// none. Dropping the future rolls back.
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

    /// Runs one statement and gives back its rows. Should the connection break it is run again, on another: so it must
    /// be a read, or a write that may happen twice. `sql` is static because it is prepared once per connection and kept.
    pub async fn query(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.single(label, |connection| async move { connection.query(label, sql, parameters).await }).await
    }

    /// As [`Postgres::query`], for exactly one row.
    pub async fn query_one(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Row, Error> {
        error::exactly_one(label, self.query(label, sql, parameters).await?)
    }

    /// As [`Postgres::query`], for at most one row.
    pub async fn query_opt(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        error::at_most_one(label, self.query(label, sql, parameters).await?)
    }

    /// Runs one statement and gives back how many rows it touched. Should the connection break while it runs, nobody
    /// knows whether it took effect; the answer is [`Error::CommitUnknown`].
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

    /// Runs one statement on a connection of its own, again while it failed without effect and there is time.
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
        // A caller that gives more time than usual has a reason: a long handler, a migration of data.
        Deadline::current().unwrap_or_else(|| Deadline::after(self.config.call_timeout))
    }

    /// A connection for our own use, before `deadline`.
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
