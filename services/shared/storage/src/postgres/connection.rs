//! Pooled connection that tracks unfinished statements and transactions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use futures_util::FutureExt as _;
use tokio_postgres::{NoTls, Row, Statement};

use super::Parameters;
use super::error::{self, Error};

/// Timeout of a request to cancel an abandoned statement.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Connection in exclusive use. Dropping it returns it to the pool, unless a statement on it was abandoned or its
/// session is gone.
pub(super) struct Connection {
    /// `None` only during the drop.
    object: Option<Object>,
    /// Number of statements that started and did not finish. A dropped statement never finishes, so at the end this
    /// counts the abandoned ones.
    unfinished: AtomicUsize,
    /// True between BEGIN and the reply to COMMIT or ROLLBACK.
    in_transaction: AtomicBool,
    /// A statement found the session gone. The driver may not know yet, and the pool would reuse the connection.
    broken: AtomicBool,
    /// Set before COMMIT is sent. From then on the session must not be cancelled, because that could hit the commit.
    committing: AtomicBool,
}

impl Connection {
    pub(super) fn new(object: Object) -> Self {
        Self {
            object: Some(object),
            unfinished: AtomicUsize::new(0),
            in_transaction: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            committing: AtomicBool::new(false),
        }
    }

    pub(super) async fn query(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let client = self.client(label)?;
        let statement = async { client.query(&client.prepare_cached(sql).await?, parameters).await };
        self.run(label, statement).await
    }

    pub(super) async fn execute(
        &self,
        label: &'static str,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        let statement = self.prepare(label, sql).await?;
        self.execute_prepared(label, &statement, parameters).await
    }

    pub(super) async fn prepare(&self, label: &'static str, sql: &'static str) -> Result<Statement, Error> {
        self.run(label, self.client(label)?.prepare_cached(sql)).await
    }

    pub(super) async fn execute_prepared(
        &self,
        label: &'static str,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        self.run(label, self.client(label)?.execute(statement, parameters)).await
    }

    /// Runs statements without parameters and without preparing them.
    pub(super) async fn batch(&self, label: &'static str, sql: &str) -> Result<(), Error> {
        let client = self.client(label)?;
        self.run(label, client.batch_execute(sql)).await
    }

    /// Runs `statement`, which uses this connection's client, and counts it as unfinished until it ends.
    pub(super) async fn run<T>(
        &self,
        label: &'static str,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let result = statement.await;
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
        result.map_err(|source| {
            let error = error::of_statement(label, source);
            if matches!(error, Error::Unavailable { .. }) {
                self.broken.store(true, Ordering::Relaxed);
            }
            error
        })
    }

    pub(super) fn client(&self, label: &'static str) -> Result<&ClientWrapper, Error> {
        self.object.as_deref().ok_or(Error::Aborted { label })
    }

    /// Returns true if a statement was started and dropped, so its outcome is unknown.
    pub(super) fn has_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) > 0
    }

    pub(super) fn set_in_transaction(&self, is_open: bool) {
        self.in_transaction.store(is_open, Ordering::Relaxed);
    }

    pub(super) fn set_committing(&self) {
        self.committing.store(true, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        if self.has_unfinished() {
            abandon(object, !self.committing.load(Ordering::Relaxed));
        } else if self.broken.load(Ordering::Relaxed) {
            abandon(object, false);
        } else if self.in_transaction.load(Ordering::Relaxed) {
            // The first poll sends it. Its reply is not needed: Postgres runs the next user's statements after it.
            let _ = object.batch_execute("ROLLBACK").now_or_never();
        }
    }
}

/// Closes the connection instead of pooling it, because its next user would wait for the abandoned statement. Postgres
/// rolls back when the session ends; cancelling the statement ends it immediately.
fn abandon(object: Object, cancel: bool) {
    let client = Object::take(object);
    let (true, Ok(runtime)) = (cancel, tokio::runtime::Handle::try_current()) else { return };
    let token = client.cancel_token();
    runtime.spawn(async move {
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, token.cancel_query(NoTls)).await;
        drop(client);
    });
}
