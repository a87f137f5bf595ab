//! Migrations: concurrent starts, changed files, and wrong orders.

use onsale_storage::migrate::{self, Error, Refusal};
use onsale_storage::postgres::{Postgres, column};
use onsale_testkit::stack;

const FIRST: (&str, &str) = ("V0001__first", "CREATE TABLE first (id int)");
const SECOND: (&str, &str) = ("V0002__second", "CREATE TABLE second (id int)");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_concurrent_starts_migrate_once() {
    let database = stack::database().await.unwrap();
    let config = database.config("crowd");
    // Not idempotent, and slow enough that the starts overlap.
    let file = ("V0001__once", "CREATE TABLE once AS SELECT 1 AS id FROM pg_sleep(0.2)");
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let config = config.clone();
        runs.spawn(async move { migrate::run_files(&config, &[file]).await.unwrap().len() });
    }
    let applied = runs.join_all().await;
    assert_eq!(applied.iter().filter(|count| **count > 0).count(), 1, "{applied:?}");
    let postgres = Postgres::connect(&config).await.unwrap();
    let row = postgres.query_one("count", "SELECT count(*) AS count FROM once", &[]).await.unwrap();
    assert_eq!(column::<i64>(&row, "count").unwrap(), 1);
}

#[tokio::test]
async fn second_run_applies_nothing() {
    let database = stack::database().await.unwrap();
    let config = database.config("twice");
    assert!(!migrate::pending(&config).await.unwrap().is_empty());
    let applied = migrate::run(&config).await.unwrap();
    assert!(!applied.is_empty());
    assert_eq!(migrate::pending(&config).await.unwrap(), Vec::<String>::new());
    assert_eq!(migrate::run(&config).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn every_schema_has_its_own_tables() {
    let database = stack::database().await.unwrap();
    for schema in ["one", "two"] {
        let config = database.config(schema);
        migrate::run(&config).await.unwrap();
        let postgres = Postgres::connect(&config).await.unwrap();
        let insert = "INSERT INTO outbox_topic (topic) VALUES ('t')";
        assert_eq!(postgres.execute("insert", insert, &[]).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn changed_file_is_refused_with_a_remedy() {
    let database = stack::database().await.unwrap();
    let config = database.config("divergent");
    migrate::run_files(&config, &[FIRST]).await.unwrap();
    let changed = [(FIRST.0, "CREATE TABLE first (id bigint)")];
    let error = migrate::run_files(&config, &changed).await.unwrap_err();
    let Error::Refused { source, .. } = error else { panic!("{error:?}") };
    assert!(matches!(source, Refusal::Divergent { .. }));
    assert!(source.to_string().contains("add a new file"), "{source}");
}

#[tokio::test]
async fn a_file_below_an_applied_one_is_refused() {
    let database = stack::database().await.unwrap();
    let config = database.config("disorder");
    migrate::run_files(&config, &[SECOND]).await.unwrap();
    let error = migrate::run_files(&config, &[FIRST, SECOND]).await.unwrap_err();
    assert!(matches!(error, Error::Refused { source: Refusal::OutOfOrder { .. }, .. }), "{error:?}");
}

#[tokio::test]
async fn older_binary_starts_on_a_newer_schema() {
    let database = stack::database().await.unwrap();
    let config = database.config("rollout");
    migrate::run_files(&config, &[FIRST, SECOND]).await.unwrap();
    assert_eq!(migrate::run_files(&config, &[FIRST]).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn failed_file_is_rolled_back_and_earlier_ones_stay() {
    let database = stack::database().await.unwrap();
    let config = database.config("halfway");
    let broken = ("V0002__broken", "CREATE TABLE half (id int); SELECT 1 / 0");
    assert!(matches!(migrate::run_files(&config, &[FIRST, broken]).await, Err(Error::Failed { .. })));
    let applied =
        migrate::run_files(&config, &[FIRST, ("V0002__mended", "CREATE TABLE half (id int)")]).await;
    assert_eq!(applied.unwrap(), ["V2__mended"]);
}

#[tokio::test]
async fn a_schema_name_that_needs_quotes_is_refused() {
    let database = stack::database().await.unwrap();
    let error = migrate::run(&database.config("drop table;--")).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
}
