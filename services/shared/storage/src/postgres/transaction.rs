//! One attempt at a transaction: begin, work, commit, and the meaning of each failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{SinkExt as _, future};
use onsale_kit::deadline::Deadline;
use parking_lot::{Mutex, MutexGuard};
use tokio_postgres::Row;

use super::connection::Connection;
use super::copy::CopyRows;
use super::error::{self, Error};
use super::{Parameters, Postgres, PostgresConfig};

/// Isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees the commits before its start. Sufficient if a constraint or a lock decides.
    ReadCommitted,
    /// All statements see the same snapshot.
    RepeatableRead,
    /// Behaves as if transactions ran one after the other; losers are retried.
    Serializable,
}

/// Handle of a running transaction. Clones share it. After the work has returned, every statement fails.
#[derive(Clone)]
pub struct Transaction(Arc<Inner>);

struct Inner {
    connection: Connection,
    label: &'static str,
    /// Set after a failed statement: Postgres will roll back.
    failed: AtomicBool,
    /// Set after a failure that permits a restart of the transaction.
    repeatable: AtomicBool,
    /// Set once the work has returned: later statements are refused.
    closed: AtomicBool,
    /// Functions to run after the commit.
    after_commit: Mutex<Vec<CommitHook>>,
}

type CommitHook = Box<dyn FnOnce() + Send>;

/// A failed attempt, and whether the transaction may be restarted.
pub(super) struct Failure<E> {
    pub(super) error: E,
    pub(super) repeatable: bool,
}

impl Transaction {
    /// Runs one statement and returns its rows. `sql` is static because each connection prepares it once and caches it.
    pub async fn query(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.record(self.open()?.query(self.0.label, sql, parameters).await)
    }

    /// Like [`Transaction::query`], for exactly one row.
    pub async fn query_one(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Row, Error> {
        error::exactly_one(self.0.label, self.query(sql, parameters).await?)
    }

    /// Like [`Transaction::query`], for at most one row.
    pub async fn query_opt(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        error::at_most_one(self.0.label, self.query(sql, parameters).await?)
    }

    /// Runs one statement and returns the number of affected rows.
    pub async fn execute(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<u64, Error> {
        self.record(self.open()?.execute(self.0.label, sql, parameters).await)
    }

    /// Runs a `COPY … FROM STDIN (FORMAT binary)` of `rows` and returns the number of rows.
    pub async fn copy_in(&self, sql: &'static str, rows: CopyRows<'_>) -> Result<u64, Error> {
        let connection = self.open()?;
        let client = connection.client(self.0.label)?;
        let copy = async {
            let statement = client.prepare_cached(sql).await?;
            let mut sink = Box::pin(client.copy_in(&statement).await?);
            for message in rows.into_messages() {
                // Without a flush, the last message goes out together with the end.
                sink.feed(message).await?;
            }
            sink.as_mut().finish().await
        };
        self.record(connection.run(self.0.label, copy).await)
    }

    /// Runs `hook` right after the commit. It does not run if the transaction is rolled back or restarted, if the
    /// commit's reply is lost, or if the process crashes in between, so use it for hints only. It must not block.
    pub fn after_commit(&self, hook: impl FnOnce() + Send + 'static) {
        self.0.hooks().push(Box::new(hook));
    }

    fn open(&self) -> Result<&Connection, Error> {
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(Error::Aborted { label: self.0.label });
        }
        Ok(&self.0.connection)
    }

    fn record<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.0.failed.store(true, Ordering::Relaxed);
            if error.is_without_effect() {
                self.0.repeatable.store(true, Ordering::Relaxed);
            }
        }
        result
    }
}

impl Inner {
    fn hooks(&self) -> MutexGuard<'_, Vec<CommitHook>> {
        self.after_commit.lock()
    }
}

/// Runs `work` once in a transaction.
pub(super) async fn attempt<T, E, F>(
    postgres: &Postgres,
    isolation: Isolation,
    label: &'static str,
    deadline: Deadline,
    work: impl FnOnce(Transaction) -> F,
) -> Result<T, Failure<E>>
where
    E: From<Error>,
    F: Future<Output = Result<T, E>>,
{
    let connection = postgres.acquire(label, deadline).await.map_err(Failure::of)?;
    let begin = begin_statement(isolation, &postgres.config, deadline);
    connection.set_in_transaction(true);
    let inner = Arc::new(Inner {
        connection,
        label,
        failed: AtomicBool::new(false),
        repeatable: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        after_commit: Mutex::default(),
    });
    // Boxed because every caller up the stack would hold a copy of its size.
    let work = Box::pin(work(Transaction(Arc::clone(&inner))));
    // `join` polls in order and the first poll sends a statement, so BEGIN travels together with the work's first
    // statement. If BEGIN fails, the session is gone and later statements fail too.
    let both = future::join(inner.connection.batch(label, &begin), work);
    let bounded = deadline.bound(both).await;
    inner.closed.store(true, Ordering::Relaxed);
    let Ok((begin_result, worked)) = bounded else {
        return Err(Failure::of(Error::Timeout { label, source: None }));
    };
    let repeatable = inner.repeatable.load(Ordering::Relaxed);
    let value = worked.map_err(|error| Failure { error, repeatable })?;
    begin_result.map_err(Failure::of)?;
    if inner.failed.load(Ordering::Relaxed) || inner.connection.has_unfinished() {
        return Err(Failure { error: Error::Aborted { label }.into(), repeatable });
    }
    commit(&inner.connection, label, deadline).await?;
    let hooks = std::mem::take(&mut *inner.hooks());
    for hook in hooks {
        hook();
    }
    Ok(value)
}

/// Commits. From here on a failure may mean that the commit happened.
async fn commit<E: From<Error>>(
    connection: &Connection,
    label: &'static str,
    deadline: Deadline,
) -> Result<(), Failure<E>> {
    connection.set_committing();
    match deadline.bound(connection.batch(label, "COMMIT")).await {
        Ok(Ok(())) => {
            connection.set_in_transaction(false);
            Ok(())
        }
        // Without a reply the outcome is unknown.
        Err(_passed) => Err(Failure::of(Error::CommitUnknown { label, source: None })),
        Ok(Err(lost @ Error::Unavailable { .. })) => Err(Failure::of(error::of_autocommit(lost))),
        // A refused commit is a rollback.
        Ok(Err(refusal)) => {
            connection.set_in_transaction(false);
            Err(Failure::of(refusal))
        }
    }
}

impl<E: From<Error>> Failure<E> {
    fn of(error: Error) -> Self {
        Self { repeatable: error.is_without_effect(), error: error.into() }
    }
}

/// Returns BEGIN with limits that end at the deadline, where the session's own limits are longer.
fn begin_statement(isolation: Isolation, config: &PostgresConfig, deadline: Deadline) -> String {
    let mut statement = String::from(match isolation {
        Isolation::ReadCommitted => "BEGIN",
        Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
    });
    // Postgres reads 0 as "no limit".
    let remaining = deadline.remaining().max(Duration::from_millis(1));
    for (name, limit) in
        [("statement_timeout", config.statement_timeout), ("lock_timeout", config.lock_timeout)]
    {
        if remaining < limit {
            statement.push_str(&format!("; SET LOCAL {name} = {}", remaining.as_millis()));
        }
    }
    statement
}
