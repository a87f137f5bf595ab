//! Brings a schema up to date. The files under `/migrations` are embedded: those in `shared/` (the tables of the
//! mechanisms in this crate) go into every schema, before the schema's own.
//!
//! Safe when many start at once: one works, the others wait and find nothing left to do. It must never change what an
//! applied file says, and never go back: a schema newer than this binary is left as it is, because during a rollout
//! old pods still start.

mod plan;

use std::time::Duration;

use refinery::{Migration, Runner};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};

use crate::postgres::PostgresConfig;

pub use plan::Refusal;

/// How long to wait for another process that migrates the same schema.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(120);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long one statement of a migration may wait for a table's lock. While it waits, everybody behind it does too.
const TABLE_LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// The first half of the advisory lock's key; the second is the schema's hash. Any number will do, it is only ours.
const LOCK_KEY: i32 = 0x6d69_6772;

const SHARED: &str = "shared";
const SHARED_HISTORY: &str = "migration_history_shared";
const OWN_HISTORY: &str = "migration_history";

/// One embedded file.
struct File {
    directory: &'static str,
    name: &'static str,
    sql: &'static str,
}

mod embedded {
    use super::File;
    include!(concat!(env!("OUT_DIR"), "/migrations.rs"));
}

/// Why a schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error("failed to read the settings for the migration")]
    Config {
        /// Why.
        #[source]
        source: crate::postgres::Error,
    },
    /// The database could not be reached, or a statement around the migrations failed.
    #[error("failed to {attempt}")]
    Postgres {
        /// What was tried.
        attempt: &'static str,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Another process holds the schema's migration lock.
    #[error("another process has been migrating schema `{schema}` for {waited:?}")]
    Locked {
        /// The schema.
        schema: String,
        /// How long we waited.
        waited: Duration,
    },
    /// The files and what was applied do not fit together.
    #[error("refused to migrate schema `{schema}`")]
    Refused {
        /// The schema.
        schema: String,
        /// What does not fit.
        #[source]
        source: Refusal,
    },
    /// A migration failed; it left nothing behind, those before it stay.
    #[error("failed to migrate schema `{schema}`")]
    Failed {
        /// The schema.
        schema: String,
        /// Which file, and why.
        #[source]
        source: refinery::Error,
    },
}

/// Every schema that has files of its own.
#[must_use]
pub fn schemas() -> Vec<&'static str> {
    let mut schemas: Vec<_> = embedded::FILES.iter().map(|file| file.directory).collect();
    schemas.dedup();
    schemas.retain(|schema| *schema != SHARED);
    schemas
}

/// A short text that changes with any file.
#[must_use]
pub fn digest() -> &'static str {
    embedded::DIGEST
}

/// Applies what is missing in `config`'s schema and gives back the names of what was applied.
pub async fn run(config: &PostgresConfig) -> Result<Vec<String>, Error> {
    apply(config, &files(SHARED), &files(&config.schema)).await
}

/// The names of what [`run`] would apply. Changes nothing.
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

/// As [`run`], with files from elsewhere: for tests of the mechanism.
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
    // The lock is the session's: it ends with `client`, also when we are dropped or killed.
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

/// One directory's files and the table that remembers which were applied.
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
        // The build refuses names that do not parse.
        .filter_map(|file| Migration::unapplied(file.name, file.sql).ok())
        .collect()
}

/// A connection of our own: migrations may run long and hold a session lock, which no pool should see.
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
            tracing::warn!(%error, "migration connection broke");
        }
    });
    Ok(client)
}

/// Takes the schema's lock. By asking again, not by waiting inside Postgres: a waiting statement holds back
/// `CREATE INDEX CONCURRENTLY` of the one it waits for, and both would wait for ever.
async fn lock(client: &Client, schema: &str) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let row = client
            .query_one("SELECT pg_try_advisory_lock($1, hashtext($2))", &[&LOCK_KEY, &schema])
            .await
            .and_then(|row| row.try_get::<_, bool>(0))
            .map_err(|source| Error::Postgres { attempt: "take the migration lock", source })?;
        if row {
            return Ok(());
        }
        if begun.elapsed() >= LOCK_WAIT_MAX {
            return Err(Error::Locked { schema: schema.to_owned(), waited: begun.elapsed() });
        }
        sleep(LOCK_POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_opens_with_its_locks_and_time() {
        for file in embedded::FILES {
            let first = file.sql.lines().next().unwrap_or_default();
            let says_both = first.starts_with("-- Locks: ") && first.contains(" Time: ");
            assert!(says_both, "{}/{} must open with `-- Locks: … Time: …`", file.directory, file.name);
        }
    }

    #[test]
    fn shared_files_are_no_schema() {
        assert!(!files(SHARED).is_empty());
        assert!(!schemas().contains(&SHARED));
    }
}
