//! Shared parts of the tests: a migrated schema and direct statements.

use onsale_storage::postgres::{Postgres, PostgresConfig};
use onsale_testkit::stack::{self, TestDatabase};

/// Returns a fresh database and a client of its sandbox schema. Dropping the first deletes the database.
pub(crate) async fn sandbox() -> (TestDatabase, Postgres) {
    sandbox_with(|_| {}).await
}

/// Like `sandbox`, with changed settings.
pub(crate) async fn sandbox_with(change: impl FnOnce(&mut PostgresConfig)) -> (TestDatabase, Postgres) {
    let database = stack::database().await.unwrap();
    let mut config = database.sandbox();
    change(&mut config);
    let postgres = Postgres::connect(&config).await.unwrap();
    (database, postgres)
}

/// Runs a statement that changes the schema, outside of the client's statement cache.
pub(crate) async fn run_sql(database: &TestDatabase, sql: &str) {
    let mut config: tokio_postgres::Config = database.url.parse().unwrap();
    config.options(format!("-c search_path={}", stack::SANDBOX_SCHEMA));
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    let running = tokio::task::JoinSet::from_iter([async move { connection.await.unwrap() }]);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    running.join_all().await;
}
