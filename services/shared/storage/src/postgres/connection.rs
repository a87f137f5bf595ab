//! A pooled connection that knows whether it is in the middle of something.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use futures_util::FutureExt as _;
use tokio_postgres::{NoTls, Row, Statement};

use super::Parameters;
use super::error::{self, Error};

/// For the message that asks Postgres to stop a statement nobody waits for.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection in exclusive use. Dropping it gives it back to the pool, unless a statement was abandoned on it.
pub(super) struct Connection {
    /// `None` only while it is being dropped.
    object: Option<Object>,
    /// Statements begun and not ended. A dropped statement never ends, so what remains here at the end is what was
    /// abandoned.
    unfinished: AtomicUsize,
    /// Between BEGIN and the answer to COMMIT or ROLLBACK.
    in_transaction: AtomicBool,
    /// A statement found the session gone. The driver may not know yet, and the pool would hand it out again.
    broken: AtomicBool,
    /// After COMMIT was sent nothing may be cancelled any more: the commit would be hit.
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

    /// Runs statements without parameters, and without preparing them.
    pub(super) async fn batch(&self, label: &'static str, sql: &str) -> Result<(), Error> {
        let client = self.client(label)?;
        self.run(label, client.batch_execute(sql)).await
    }

    /// Runs `statement`, which uses this connection's client, and keeps count of it.
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

    /// Whether a statement was begun and dropped: its outcome is not known.
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
            // Sent at the first poll. Nobody needs the answer: what the next user sends is answered after it.
            let _ = object.batch_execute("ROLLBACK").now_or_never();
        }
    }
}

/// Closes the connection instead of pooling it: its next user would wait for a statement that is not theirs.
/// Postgres rolls back when the session ends; the statement is cancelled so that this is now.
fn abandon(object: Object, cancel: bool) {
    let client = Object::take(object);
    let (true, Ok(runtime)) = (cancel, tokio::runtime::Handle::try_current()) else { return };
    let token = client.cancel_token();
    runtime.spawn(async move {
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, token.cancel_query(NoTls)).await;
        drop(client);
    });
}
