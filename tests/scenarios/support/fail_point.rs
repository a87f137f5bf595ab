//! Stops a process in the middle of its work, exactly: a trigger in the test's database makes whoever writes to a table wait
//! for a lock that the test has, before the row is there or at the commit. No service knows of it.

use std::time::Duration;

use onsale_testkit::wait_until;
use tokio_postgres::{Client, NoTls};

use super::mesh::Mesh;

/// How long it may take until somebody comes by.
const REACHED_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a second one is waited for. Services wait 3 s for a lock, so whoever was first still stands there then.
const SECOND_TIMEOUT: Duration = Duration::from_millis(700);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// When a writer is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StopAt {
    /// Before its first row is written.
    Insert,
    /// When it commits: nothing is left to do but to hear that it is done.
    Commit,
}

/// A point that nobody passes.
pub(crate) struct FailPoint {
    client: Client,
    table: &'static str,
}

/// A session of the test's own in the mesh's database.
pub(crate) async fn session(mesh: &Mesh) -> Client {
    let (client, connection) = tokio_postgres::connect(mesh.postgres_url(), NoTls).await.unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the connection ends with its client, which nobody drains"
    )]
    drop(tokio::task::spawn(connection));
    client
}

impl FailPoint {
    /// Whoever inserts into `table` is stopped at `stop_at`, until this is lifted.
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

    /// Waits until somebody stands here.
    pub(crate) async fn wait_until_reached(&self) {
        wait_until("the fail point is reached", REACHED_TIMEOUT, || async {
            !self.blocked_sessions().await.is_empty()
        })
        .await;
    }

    /// Gives a second one a stop_at to come here too; says how many stand here. One, when the service serves both together.
    pub(crate) async fn blocked_after_second(&self) -> usize {
        let second = async {
            while self.blocked_sessions().await.len() < 2 {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(SECOND_TIMEOUT, second).await;
        self.blocked_sessions().await.len()
    }

    /// The sessions that are stopped here.
    async fn blocked_sessions(&self) -> Vec<i32> {
        let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND objid = (hashtext('fail_point')::bigint & x'ffffffff'::bigint)::oid";
        let rows = self.client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Whoever stands here goes on.
    pub(crate) async fn release(&self) {
        let release = "SELECT pg_advisory_unlock(hashtext('fail_point'))";
        self.client.batch_execute(release).await.unwrap();
    }

    /// Whoever stands here goes no further, as if the network had gone with the process: nothing of it is committed.
    pub(crate) async fn end_sessions(&self) {
        for session in self.blocked_sessions().await {
            self.client.execute("SELECT pg_terminate_backend($1)", &[&session]).await.unwrap();
        }
        wait_until("they are gone", REACHED_TIMEOUT, || async { self.blocked_sessions().await.is_empty() })
            .await;
    }

    /// Takes it away; waits for who is in the middle of writing there.
    pub(crate) async fn remove(self) {
        self.release().await;
        let remove = format!("DROP TRIGGER fail_point ON {}", self.table);
        self.client.batch_execute(&remove).await.unwrap();
    }
}
