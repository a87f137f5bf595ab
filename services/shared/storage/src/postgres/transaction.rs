//! One attempt at a transaction: begin, work, commit, and what each way of failing means.

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

/// How strictly a transaction is kept apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed before it. Enough where a constraint or a lock decides.
    ReadCommitted,
    /// All statements see the same moment.
    RepeatableRead,
    /// As if transactions ran one after the other; the losers are repeated.
    Serializable,
}

/// A running transaction, as the work inside it sees it. A handle: clones mean the same transaction, and one that
/// outlives it can do nothing any more.
#[derive(Clone)]
pub struct Transaction(Arc<Inner>);

struct Inner {
    connection: Connection,
    label: &'static str,
    /// A statement failed: Postgres will roll back whatever is asked for.
    failed: AtomicBool,
    /// A failure after which the whole transaction may be begun again.
    repeatable: AtomicBool,
    /// The work has ended: what comes now comes too late.
    closed: AtomicBool,
    /// What is done once all of it is true.
    after_commit: Mutex<Vec<CommitHook>>,
}

type CommitHook = Box<dyn FnOnce() + Send>;

/// A failed attempt.
pub(super) struct Failure<E> {
    pub(super) error: E,
    pub(super) repeatable: bool,
}

impl Transaction {
    /// Runs one statement and gives back its rows. `sql` is static because it is prepared once per connection and kept.
    pub async fn query(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.record(self.open()?.query(self.0.label, sql, parameters).await)
    }

    /// As [`Transaction::query`], for exactly one row.
    pub async fn query_one(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<Row, Error> {
        error::exactly_one(self.0.label, self.query(sql, parameters).await?)
    }

    /// As [`Transaction::query`], for at most one row.
    pub async fn query_opt(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        error::at_most_one(self.0.label, self.query(sql, parameters).await?)
    }

    /// Runs one statement and gives back how many rows it touched.
    pub async fn execute(&self, sql: &'static str, parameters: Parameters<'_>) -> Result<u64, Error> {
        self.record(self.open()?.execute(self.0.label, sql, parameters).await)
    }

    /// Runs a `COPY … FROM STDIN (FORMAT binary)` of `rows`. The answer is how many arrived.
    pub async fn copy_in(&self, sql: &'static str, rows: CopyRows<'_>) -> Result<u64, Error> {
        let connection = self.open()?;
        let client = connection.client(self.0.label)?;
        let copy = async {
            let statement = client.prepare_cached(sql).await?;
            let mut sink = Box::pin(client.copy_in(&statement).await?);
            for message in rows.into_messages() {
                // Not flushed: the last one goes out together with the end.
                sink.feed(message).await?;
            }
            sink.as_mut().finish().await
        };
        self.record(connection.run(self.0.label, copy).await)
    }

    /// Has `hook` done right after the commit, and not at all when the transaction is rolled back, begun again, or its
    /// commit's answer is lost. For hints only: a crash in between loses it. It must not wait for anything.
    pub fn after_commit(&self, hook: impl FnOnce() + Send + 'static) {
        self.0.hooks().push(Box::new(hook));
    }

    /// What the caller of the transaction calls it.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.0.label
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
    // Boxed, as its size is the caller's and every layer above would carry a copy of it.
    let work = Box::pin(work(Transaction(Arc::clone(&inner))));
    // `join` polls in order and a statement is sent at its first poll: BEGIN goes out before the work's first
    // statement and travels with it. Should it fail, the session is gone, and every later statement with it.
    let both = future::join(inner.connection.batch(label, &begin), work);
    let bounded = deadline.bound(both).await;
    inner.closed.store(true, Ordering::Relaxed);
    let Ok((begun, worked)) = bounded else {
        return Err(Failure::of(Error::Timeout { label, source: None }));
    };
    let repeatable = inner.repeatable.load(Ordering::Relaxed);
    let value = worked.map_err(|error| Failure { error, repeatable })?;
    begun.map_err(Failure::of)?;
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

/// From here on a failure may mean that the commit happened.
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
        // Without an answer nothing is known.
        Err(_passed) => Err(Failure::of(Error::CommitUnknown { label, source: None })),
        Ok(Err(lost @ Error::Unavailable { .. })) => Err(Failure::of(error::of_autocommit(lost))),
        // Postgres answered with a refusal, and a refused commit is a rollback.
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

/// BEGIN, with limits no longer than the caller's time. The session's own limits stand unless they are longer.
fn begin_statement(isolation: Isolation, config: &PostgresConfig, deadline: Deadline) -> String {
    let mut statement = String::from(match isolation {
        Isolation::ReadCommitted => "BEGIN",
        Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
    });
    // Zero would mean "no limit".
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
