//! Migrates a schema to the version of this binary. The files under `/migrations` are embedded. Those in `shared/` (the
//! tables of this crate's mechanisms) are applied to every schema, before the schema's own.
//!
//! Concurrent starts are safe: an advisory lock lets one process migrate while the others wait up to 120 s. The runner
//! never accepts a change of an applied file and never migrates backwards. A schema newer than this binary is left
//! unchanged, because old pods still start during a rollout.

mod plan;

use std::time::Duration;

use refinery::{Migration, Runner};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};

use crate::postgres::PostgresConfig;

pub use plan::Refusal;

/// Maximum wait for another process that migrates the same schema.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(120);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum wait of one migration statement for a table lock. While it waits, later statements on the table wait behind
/// it.
const TABLE_LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// First half of the advisory lock's key; the second half is the hash of the schema's name. The value is arbitrary.
const LOCK_KEY: i32 = 0x6d69_6772;

const SHARED: &str = "shared";
const SHARED_HISTORY: &str = "migration_history_shared";
const OWN_HISTORY: &str = "migration_history";

struct File {
    directory: &'static str,
    name: &'static str,
    sql: &'static str,
}

mod embedded {
    use super::File;
    include!(concat!(env!("OUT_DIR"), "/migrations.rs"));
}

/// An error that leaves the schema at an older version.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Postgres settings are invalid.
    #[error("invalid settings for the migration")]
    Config {
        /// Error of the settings' validation.
        #[source]
        source: crate::postgres::Error,
    },
    /// Connecting failed, or a statement around the migrations did.
    #[error("failed to {attempt}")]
    Postgres {
        /// Attempted step, for the message.
        attempt: &'static str,
        /// Error of the Postgres driver.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Another process held the schema's migration lock for 120 s.
    #[error("another process has been migrating schema `{schema}` for {waited:?}")]
    Locked {
        /// Name of the schema.
        schema: String,
        /// Time spent waiting for the lock.
        waited: Duration,
    },
    /// The files contradict the schema's migration history.
    #[error("refused to migrate schema `{schema}`")]
    Refused {
        /// Name of the schema.
        schema: String,
        /// Contradiction between files and history.
        #[source]
        source: Refusal,
    },
    /// A migration failed and was rolled back. Migrations before it stay applied.
    #[error("failed to migrate schema `{schema}`")]
    Failed {
        /// Name of the schema.
        schema: String,
        /// Error of the migration runner, which names the file.
        #[source]
        source: refinery::Error,
    },
}

/// Returns the names of all schemas with files of their own.
#[must_use]
pub fn schemas() -> Vec<&'static str> {
    let mut schemas: Vec<_> = embedded::FILES.iter().map(|file| file.directory).collect();
    schemas.dedup();
    schemas.retain(|schema| *schema != SHARED);
    schemas
}

/// Returns a hash of all migration files, 16 hexadecimal digits.
#[must_use]
pub fn digest() -> &'static str {
    embedded::DIGEST
}

/// Applies the pending migrations to `config`'s schema and returns their names.
pub async fn run(config: &PostgresConfig) -> Result<Vec<String>, Error> {
    apply(config, &files(SHARED), &files(&config.schema)).await
}

/// Returns the names of the migrations that [`run`] would apply. Changes nothing.
pub async fn pending(config: &PostgresConfig) -> Result<Vec<String>, Error> {
    let mut client = connect(config).await?;
    let mut names = Vec::new();
    for (history, files) in [(SHARED_HISTORY, files(SHARED)), (OWN_HISTORY, files(&config.schema))] {
        let pending =
            MigrationSet { schema: &config.schema, history, files: &files }.pending(&mut client).await?;
        names.extend(pending.iter().map(ToString::to_string));
    }
    Ok(names)
}

/// Like [`run`], with the given files instead of the schema's own, for tests.
#[doc(hidden)]
pub async fn run_files(config: &PostgresConfig, own: &[(&str, &str)]) -> Result<Vec<String>, Error> {
    let own: Vec<Migration> =
        own.iter().filter_map(|(name, sql)| Migration::unapplied(name, sql).ok()).collect();
    apply(config, &files(SHARED), &own).await
}

async fn apply(
    config: &PostgresConfig,
    shared: &[Migration],
    own: &[Migration],
) -> Result<Vec<String>, Error> {
    let schema = &config.schema;
    let mut client = connect(config).await?;
    lock(&client, schema).await?;
    // The session holds the lock, so it ends with `client`, even if this future is dropped or the process is killed.
    client
        .batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}"))
        .await
        .map_err(|source| Error::Postgres { attempt: "create the schema", source })?;
    let mut applied = Vec::new();
    for (history, files) in [(SHARED_HISTORY, shared), (OWN_HISTORY, own)] {
        applied.extend(MigrationSet { schema, history, files }.run(&mut client).await?);
    }
    if !applied.is_empty() {
        tracing::info!(schema, count = applied.len(), last = applied.last(), "schema migrated");
    }
    Ok(applied)
}

/// Migration files of one directory, and the history table that records the applied ones.
struct MigrationSet<'a> {
    schema: &'a str,
    history: &'static str,
    files: &'a [Migration],
}

impl MigrationSet<'_> {
    async fn run(&self, client: &mut Client) -> Result<Vec<String>, Error> {
        if self.pending(client).await?.is_empty() {
            return Ok(Vec::new());
        }
        let report = self.runner().run_async(client).await.map_err(|source| self.failed(source))?;
        Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
    }

    async fn pending(&self, client: &mut Client) -> Result<Vec<Migration>, Error> {
        let applied = self.applied(client).await?;
        plan::pending(&applied, self.files)
            .map_err(|source| Error::Refused { schema: self.schema.to_owned(), source })
    }

    async fn applied(&self, client: &mut Client) -> Result<Vec<Migration>, Error> {
        let table = format!("{}.{}", self.schema, self.history);
        let exists = client
            .query_one("SELECT to_regclass($1) IS NOT NULL", &[&table])
            .await
            .and_then(|row| row.try_get::<_, bool>(0))
            .map_err(|source| Error::Postgres { attempt: "look for the migration history", source })?;
        if !exists {
            return Ok(Vec::new());
        }
        self.runner().get_applied_migrations_async(client).await.map_err(|source| self.failed(source))
    }

    fn runner(&self) -> Runner {
        let mut runner = Runner::new(self.files);
        runner.set_migration_table_name(self.history);
        runner
    }

    fn failed(&self, source: refinery::Error) -> Error {
        Error::Failed { schema: self.schema.to_owned(), source }
    }
}

fn files(directory: &str) -> Vec<Migration> {
    embedded::FILES
        .iter()
        .filter(|file| file.directory == directory)
        // `build.rs` refuses names that do not parse.
        .filter_map(|file| Migration::unapplied(file.name, file.sql).ok())
        .collect()
}

/// Opens a connection outside of the pool: migrations may run long and hold a session lock.
async fn connect(config: &PostgresConfig) -> Result<Client, Error> {
    let mut settings = config.connection().map_err(|source| Error::Config { source })?;
    settings.options(format!(
        "-c search_path={} -c lock_timeout={}",
        config.schema,
        TABLE_LOCK_WAIT_MAX.as_millis()
    ));
    let (client, connection) = settings
        .connect(NoTls)
        .await
        .map_err(|source| Error::Postgres { attempt: "connect for the migration", source })?;
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the client, before this module's functions return"
    )]
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(%error, "connection of the migration failed");
        }
    });
    Ok(client)
}

/// Takes the schema's advisory lock by polling every 50 ms. A statement that waits inside Postgres would block `CREATE
/// INDEX CONCURRENTLY` of the lock's holder, and both would wait forever.
async fn lock(client: &Client, schema: &str) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        let row = client
            .query_one("SELECT pg_try_advisory_lock($1, hashtext($2))", &[&LOCK_KEY, &schema])
            .await
            .and_then(|row| row.try_get::<_, bool>(0))
            .map_err(|source| Error::Postgres { attempt: "take the migration lock", source })?;
        if row {
            return Ok(());
        }
        if started.elapsed() >= LOCK_WAIT_MAX {
            return Err(Error::Locked { schema: schema.to_owned(), waited: started.elapsed() });
        }
        sleep(LOCK_POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_starts_with_its_locks_and_time() {
        for file in embedded::FILES {
            let first = file.sql.lines().next().unwrap_or_default();
            let says_both = first.starts_with("-- Locks: ") && first.contains(" Time: ");
            assert!(says_both, "{}/{} must open with `-- Locks: … Time: …`", file.directory, file.name);
        }
    }

    #[test]
    fn shared_files_are_not_a_schema() {
        assert!(!files(SHARED).is_empty());
        assert!(!schemas().contains(&SHARED));
    }
}
