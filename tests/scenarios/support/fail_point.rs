//! Blocks a process at an exact point of its work: a trigger in the test's database makes inserts into a table wait for a lock
//! that the test holds, either before the row is written or at the commit. The services need no change for this.

use std::time::Duration;

use onsale_testkit::wait_until;
use tokio_postgres::{Client, NoTls};

use super::mesh::Mesh;

/// Longest time until a session is blocked, or until ended sessions are gone.
const REACHED_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for a second session. Services wait 3 s for a lock, so the first session is still blocked after this time.
const SECOND_TIMEOUT: Duration = Duration::from_millis(700);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Point at which a writing session is blocked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StopAt {
    /// Before it writes its first row.
    Insert,
    /// At its commit, when all rows are written.
    Commit,
}

/// A trigger that blocks all sessions that insert into a table.
pub(crate) struct FailPoint {
    client: Client,
    table: &'static str,
}

/// Opens a session in the database of the mesh.
pub(crate) async fn session(mesh: &Mesh) -> Client {
    let (client, connection) = tokio_postgres::connect(mesh.postgres_url(), NoTls).await.unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the task ends when the client is dropped, so no shutdown has to wait for it"
    )]
    drop(tokio::task::spawn(connection));
    client
}

impl FailPoint {
    /// Blocks sessions that insert into `table` at `stop_at`, until the release.
    pub(crate) async fn set(mesh: &Mesh, table: &'static str, stop_at: StopAt) -> Self {
        let client = session(mesh).await;
        let trigger = match stop_at {
            StopAt::Insert => format!("TRIGGER fail_point BEFORE INSERT ON {table}"),
            StopAt::Commit => {
                format!("CONSTRAINT TRIGGER fail_point AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED")
            }
        };
        let set = format!(
            "SELECT pg_advisory_lock(hashtext('fail_point'));
             CREATE OR REPLACE FUNCTION public.fail_point() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_advisory_xact_lock_shared(hashtext('fail_point'));
                 RETURN NEW;
             END $$;
             CREATE {trigger} FOR EACH ROW EXECUTE FUNCTION public.fail_point();"
        );
        client.batch_execute(&set).await.unwrap();
        Self { client, table }
    }

    /// Waits until at least one session is blocked.
    pub(crate) async fn wait_until_reached(&self) {
        wait_until("the fail point is reached", REACHED_TIMEOUT, || async {
            !self.blocked_sessions().await.is_empty()
        })
        .await;
    }

    /// Waits up to 700 ms for a second blocked session and returns the number of blocked sessions. It is 1 if the service
    /// handles both calls in one batch.
    pub(crate) async fn blocked_after_second(&self) -> usize {
        let second = async {
            while self.blocked_sessions().await.len() < 2 {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(SECOND_TIMEOUT, second).await;
        self.blocked_sessions().await.len()
    }

    /// Returns the process ids of the blocked sessions.
    async fn blocked_sessions(&self) -> Vec<i32> {
        let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND objid = (hashtext('fail_point')::bigint & x'ffffffff'::bigint)::oid";
        let rows = self.client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Lets the blocked sessions continue.
    pub(crate) async fn release(&self) {
        let release = "SELECT pg_advisory_unlock(hashtext('fail_point'))";
        self.client.batch_execute(release).await.unwrap();
    }

    /// Terminates the blocked sessions, as if their connections had broken with the process. Their transactions roll back.
    pub(crate) async fn end_sessions(&self) {
        for session in self.blocked_sessions().await {
            self.client.execute("SELECT pg_terminate_backend($1)", &[&session]).await.unwrap();
        }
        wait_until("the sessions have ended", REACHED_TIMEOUT, || async {
            self.blocked_sessions().await.is_empty()
        })
        .await;
    }

    /// Removes the trigger. Waits for transactions that are writing to the table.
    pub(crate) async fn remove(self) {
        self.release().await;
        let remove = format!("DROP TRIGGER fail_point ON {}", self.table);
        self.client.batch_execute(&remove).await.unwrap();
    }
}
