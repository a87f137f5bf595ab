//! Postgres client: transactions under races, broken connections, dropped futures and deadlines.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onsale_kit::deadline::Deadline;
use onsale_storage::postgres::{CopyRows, Error, Isolation, Postgres, PostgresConfig, Transaction, column};
use onsale_testkit::stack::TestDatabase;
use onsale_testkit::wait_until;
use tokio::sync::Barrier;

use crate::support::{run_sql, sandbox, sandbox_with};

const SOON: Duration = Duration::from_secs(10);

async fn account() -> (TestDatabase, Postgres) {
    account_with_pool(8).await
}

async fn account_with_pool(pool_max: usize) -> (TestDatabase, Postgres) {
    let (database, postgres) = sandbox_with(|config| config.pool_max = pool_max).await;
    run_sql(
        &database,
        "CREATE TABLE account (id int CONSTRAINT one_account PRIMARY KEY, amount bigint NOT NULL);
         INSERT INTO account VALUES (1, 100), (2, 100)",
    )
    .await;
    (database, postgres)
}

async fn add(transaction: &Transaction, id: i32, amount: i64) -> Result<(), Error> {
    let sql = "UPDATE account SET amount = amount + $2 WHERE id = $1";
    transaction.execute(sql, &[&id, &amount]).await.map(drop)
}

async fn amount(postgres: &Postgres, id: i32) -> i64 {
    let row = postgres.query_one("amount", "SELECT amount FROM account WHERE id = $1", &[&id]).await.unwrap();
    column(&row, "amount").unwrap()
}

/// Returns the number of this database's sessions that run a statement containing `text`.
async fn running(postgres: &Postgres, text: &str) -> i64 {
    let sql = "SELECT count(*) AS count FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() AND query LIKE $1";
    let row = postgres.query_one("running", sql, &[&format!("%{text}%")]).await.unwrap();
    column(&row, "count").unwrap()
}

#[tokio::test]
async fn transaction_commits_on_success_and_rolls_back_on_failure() {
    let (_database, postgres) = account().await;
    postgres.transaction("ok", |transaction| async move { add(&transaction, 1, 5).await }).await.unwrap();
    assert_eq!(amount(&postgres, 1).await, 105);
    let failed: Result<(), Error> = postgres
        .transaction("fails", |transaction| async move {
            add(&transaction, 1, 5).await?;
            Err(Error::Url)
        })
        .await;
    assert!(matches!(failed, Err(Error::Url)));
    assert_eq!(amount(&postgres, 1).await, 105);
}

#[tokio::test]
async fn after_commit_hooks_run_only_after_a_commit() {
    let (_database, postgres) = account().await;
    let (done, seen) = tokio::sync::watch::channel(0);
    let done = &done;
    let work = |fails: bool| {
        move |transaction: Transaction| async move {
            let done = done.clone();
            transaction.after_commit(move || done.send_modify(|count| *count += 1));
            add(&transaction, if fails { 2 } else { 1 }, 5).await?;
            if fails { Err(Error::Aborted { label: "by the test" }) } else { Ok(()) }
        }
    };
    postgres.transaction("fails", work(true)).await.unwrap_err();
    assert_eq!(*seen.borrow(), 0);
    postgres.transaction("succeeds", work(false)).await.unwrap();
    assert_eq!(*seen.borrow(), 1);
}

#[tokio::test]
async fn transaction_work_may_borrow_and_is_send() {
    fn on_any_thread<F: Future + Send>(future: F) -> F {
        future
    }
    let (_database, postgres) = account().await;
    let ids = vec![1, 2];
    let ids = &ids;
    let work = |transaction| async move {
        for id in ids {
            add(&transaction, *id, 1).await?;
        }
        Ok::<_, Error>(ids.len())
    };
    assert_eq!(on_any_thread(postgres.transaction("borrow", work)).await.unwrap(), 2);
}

#[tokio::test]
async fn session_has_its_schema_and_limits() {
    let (_database, postgres) = sandbox().await;
    for (setting, value) in [("search_path", "sandbox"), ("statement_timeout", "5s"), ("lock_timeout", "3s")]
    {
        let row =
            postgres.query_one("show", "SELECT current_setting($1) AS value", &[&setting]).await.unwrap();
        assert_eq!(column::<String>(&row, "value").unwrap(), value);
    }
}

#[test]
fn settings_without_a_limit_are_refused() {
    let good = PostgresConfig::new("postgres://localhost/none", "sandbox");
    good.validate().unwrap();
    let no_pool = PostgresConfig { pool_max: 0, ..good.clone() };
    let no_statement_limit = PostgresConfig { statement_timeout: Duration::ZERO, ..good.clone() };
    let no_lock_limit = PostgresConfig { lock_timeout: Duration::from_micros(900), ..good };
    for config in [no_pool, no_statement_limit, no_lock_limit] {
        assert!(matches!(Postgres::lazy(&config), Err(Error::Config { .. })), "{config:?}");
    }
}

#[tokio::test]
async fn racing_serializable_transactions_are_retried_without_loss() {
    let (_database, postgres) = account().await;
    let begin = &Barrier::new(4);
    let move_one = async || {
        begin.wait().await;
        postgres
            .transaction_at(Isolation::Serializable, "race", |transaction| async move {
                let row = transaction.query_one("SELECT amount FROM account WHERE id = 1", &[]).await?;
                let next = column::<i64>(&row, "amount")? + 1;
                transaction.execute("UPDATE account SET amount = $1 WHERE id = 1", &[&next]).await?;
                Ok::<_, Error>(())
            })
            .await
            .unwrap();
    };
    tokio::join!(move_one(), move_one(), move_one(), move_one());
    assert_eq!(amount(&postgres, 1).await, 104);
}

#[tokio::test]
async fn both_deadlocked_transactions_succeed() {
    let (_database, postgres) = account().await;
    let both_hold_one = &Barrier::new(2);
    let runs = &AtomicU32::new(0);
    let transfer = async |from: i32, to: i32| {
        let first = &std::sync::atomic::AtomicBool::new(true);
        postgres
            .transaction("transfer", |transaction| async move {
                runs.fetch_add(1, Ordering::Relaxed);
                add(&transaction, from, -10).await?;
                if first.swap(false, Ordering::Relaxed) {
                    both_hold_one.wait().await;
                }
                add(&transaction, to, 10).await
            })
            .await
            .unwrap();
    };
    tokio::join!(transfer(1, 2), transfer(2, 1));
    assert!(runs.load(Ordering::Relaxed) >= 3, "neither transaction was retried");
    assert_eq!((amount(&postgres, 1).await, amount(&postgres, 2).await), (100, 100));
}

#[tokio::test]
async fn connection_broken_before_the_commit_restarts_the_transaction() {
    let (_database, postgres) = &account().await;
    let runs = &AtomicU32::new(0);
    postgres
        .transaction("broken", |transaction| async move {
            add(&transaction, 1, 1).await?;
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                let row = transaction.query_one("SELECT pg_backend_pid() AS pid", &[]).await?;
                let pid: i32 = column(&row, "pid")?;
                postgres.execute("kill", "SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
            }
            add(&transaction, 1, 1).await
        })
        .await
        .unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!(amount(postgres, 1).await, 102);
}

#[tokio::test]
async fn query_is_retried_on_a_new_session_and_execute_is_not() {
    let (database, postgres) = account_with_pool(4).await;
    // Fill the pool, then end all its sessions on the server.
    let check = || postgres.query("sleep", "SELECT pg_sleep(0.1)", &[]);
    tokio::try_join!(check(), check(), check(), check()).unwrap();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    run_sql(&database, kill).await;
    assert_eq!(amount(&postgres, 1).await, 100);
    for _ in 0..4 {
        postgres
            .transaction("next", |transaction| async move { add(&transaction, 1, 1).await })
            .await
            .unwrap();
    }
    assert_eq!(amount(&postgres, 1).await, 104);

    let write = postgres.execute("write", "INSERT INTO account SELECT 3, 0 FROM pg_sleep(60)", &[]);
    let cut = async {
        wait_until("the write runs", SOON, async || running(&postgres, "INSERT").await == 1).await;
        run_sql(&database, kill).await;
    };
    let (outcome, ()) = tokio::join!(write, cut);
    assert!(matches!(outcome, Err(Error::CommitUnknown { .. })), "{outcome:?}");
    assert_eq!(running(&postgres, "INSERT").await, 0);
}

#[tokio::test]
async fn commit_without_a_reply_is_unknown_and_not_retried() {
    let (database, postgres) = account().await;
    run_sql(
        &database,
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(4); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION slowly()",
    )
    .await;
    let runs = &AtomicU32::new(0);
    let commit = postgres.transaction("cut", |transaction| async move {
        runs.fetch_add(1, Ordering::Relaxed);
        add(&transaction, 1, 1).await
    });
    let cut = async {
        wait_until("the commit runs", SOON, async || running(&postgres, "COMMIT").await == 1).await;
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND query = 'COMMIT' AND state = 'active'";
        postgres.query("kill", sql, &[]).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(commit, cut);
    assert!(matches!(outcome, Err(Error::CommitUnknown { .. })), "{outcome:?}");

    let late = postgres.transaction("late", |transaction| async move {
        runs.fetch_add(1, Ordering::Relaxed);
        add(&transaction, 1, 1).await
    });
    let outcome = Deadline::after(Duration::from_millis(300)).scope(late).await;
    assert!(matches!(outcome, Err(Error::CommitUnknown { .. } | Error::Timeout { .. })), "{outcome:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn work_dropped_in_a_statement_rolls_back_immediately() {
    let (_database, postgres) = account_with_pool(2).await;
    let work = postgres.transaction("dropped", |transaction| async move {
        add(&transaction, 1, 5).await?;
        transaction.execute("SELECT pg_sleep(60)", &[]).await
    });
    tokio::select! {
        outcome = work => panic!("ended without a drop: {outcome:?}"),
        () = wait_until("the statement runs", SOON, async || running(&postgres, "pg_sleep").await == 1) => {}
    }
    let begun = Instant::now();
    // Waits for the row's lock if the dropped transaction still holds it.
    for _ in 0..4 {
        postgres
            .transaction("next", |transaction| async move { add(&transaction, 1, 1).await })
            .await
            .unwrap();
    }
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
    assert_eq!(amount(&postgres, 1).await, 104);
    wait_until("the statement is cancelled", SOON, async || running(&postgres, "pg_sleep").await == 0).await;
}

#[tokio::test]
async fn work_dropped_between_statements_rolls_back() {
    let (_database, postgres) = account_with_pool(1).await;
    let reached = &tokio::sync::Notify::new();
    let work = postgres.transaction("dropped", |transaction| async move {
        add(&transaction, 1, 5).await?;
        reached.notify_one();
        std::future::pending::<Result<(), Error>>().await
    });
    tokio::select! {
        _ = work => panic!("ended although it waits"),
        () = reached.notified() => {}
    }
    postgres.transaction("next", |transaction| async move { add(&transaction, 1, 1).await }).await.unwrap();
    assert_eq!(amount(&postgres, 1).await, 101);
}

#[tokio::test]
async fn a_deadline_ends_the_statement_on_the_server_too() {
    let (_database, postgres) = account().await;
    let begun = Instant::now();
    let slow = postgres.transaction("slow", |transaction| async move {
        transaction.execute("SELECT pg_sleep(30)", &[]).await
    });
    let outcome = Deadline::after(Duration::from_millis(150)).scope(slow).await;
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    let single = postgres.execute("slow", "SELECT pg_sleep(30)", &[]);
    let outcome = Deadline::after(Duration::from_millis(150)).scope(single).await;
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    // Far below the statement timeout of the session.
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
    wait_until("the statement is cancelled", SOON, async || running(&postgres, "pg_sleep").await == 0).await;
}

#[tokio::test]
async fn lock_wait_ends_at_the_deadline() {
    let (_database, postgres) = account().await;
    let held = &tokio::sync::Notify::new();
    let holder = postgres.transaction("holder", |transaction| async move {
        add(&transaction, 1, 1).await?;
        held.notify_one();
        std::future::pending::<Result<(), Error>>().await
    });
    let waiter = async {
        held.notified().await;
        let blocked =
            postgres.transaction("blocked", |transaction| async move { add(&transaction, 1, 1).await });
        Deadline::after(Duration::from_millis(100)).scope(blocked).await
    };
    tokio::select! {
        _ = holder => panic!("ended although it waits"),
        outcome = waiter => assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}"),
    }
}

#[tokio::test]
async fn work_does_not_start_with_too_little_time_left() {
    let (_database, postgres) = account().await;
    let runs = &AtomicU32::new(0);
    for left in [Duration::ZERO, Duration::from_millis(2)] {
        let work = postgres.transaction("late", |_tx| async {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(())
        });
        let outcome = Deadline::after(left).scope(work).await;
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn success_after_a_failed_statement_is_aborted() {
    let (_database, postgres) = account().await;
    let outcome = postgres
        .transaction("swallowed", |transaction| async move {
            add(&transaction, 1, 5).await?;
            let _ = transaction.execute("INSERT INTO account VALUES (1, 0)", &[]).await;
            Ok::<_, Error>(())
        })
        .await;
    assert!(matches!(outcome, Err(Error::Aborted { .. })), "{outcome:?}");
    assert_eq!(amount(&postgres, 1).await, 100);
}

#[tokio::test]
async fn success_after_a_dropped_statement_is_aborted() {
    let (_database, postgres) = account().await;
    let outcome = postgres
        .transaction("dropped", |transaction| async move {
            let statement = transaction.execute("SELECT 1 / (pg_sleep(0.1) IS NULL)::int", &[]);
            let _ = tokio::time::timeout(Duration::from_millis(20), statement).await;
            Ok::<_, Error>(())
        })
        .await;
    assert!(matches!(outcome, Err(Error::Aborted { .. })), "{outcome:?}");
}

#[tokio::test]
async fn conflict_names_its_constraint() {
    let (_database, postgres) = account().await;
    let outcome = postgres.execute("twice", "INSERT INTO account VALUES (1, 0)", &[]).await;
    assert_eq!(outcome.unwrap_err().conflict(), Some("one_account"));
}

#[tokio::test]
async fn wait_for_a_connection_ends_at_acquire_timeout() {
    let (_database, postgres) = sandbox_with(|config| {
        config.pool_max = 1;
        config.acquire_timeout = Duration::from_millis(100);
    })
    .await;
    let held = &tokio::sync::Notify::new();
    let holder = postgres.transaction("holder", |transaction| async move {
        transaction.execute("SELECT 1", &[]).await?;
        held.notify_one();
        std::future::pending::<Result<(), Error>>().await
    });
    let waiter = async {
        held.notified().await;
        postgres.check().await
    };
    tokio::select! {
        _ = holder => panic!("ended although it waits"),
        outcome = waiter => assert!(matches!(outcome, Err(Error::Busy { .. })), "{outcome:?}"),
    }
}

#[tokio::test]
async fn copy_stores_all_rows_or_none() {
    use tokio_postgres::types::Type;
    const TYPES: [Type; 2] = [Type::INT4, Type::INT8];
    let (_database, postgres) = account().await;
    let sql = "COPY account (id, amount) FROM STDIN (FORMAT binary)";
    let copy = async |ids: std::ops::Range<i32>| {
        let ids = &ids;
        postgres
            .transaction("copy", |transaction| async move {
                let mut rows = CopyRows::of(&TYPES, ids.len());
                for id in ids.clone() {
                    rows.push(&[&id, &7_i64])?;
                }
                transaction.copy_in(sql, rows).await
            })
            .await
    };
    assert_eq!(copy(10..110).await.unwrap(), 100);
    let outcome = copy(100..200).await;
    assert_eq!(outcome.unwrap_err().conflict(), Some("one_account"));
    // More rows than fit into one message.
    assert_eq!(copy(1_000..21_000).await.unwrap(), 20_000);
    assert_eq!(copy(0..0).await.unwrap(), 0);
    let sum = "SELECT count(*) AS count, sum(amount)::bigint AS sum FROM account";
    let row = postgres.query_one("count", sum, &[]).await.unwrap();
    assert_eq!(column::<i64>(&row, "count").unwrap(), 20_102);
    assert_eq!(column::<i64>(&row, "sum").unwrap(), 20_100 * 7 + 200);
}

#[test]
fn copy_refuses_rows_that_do_not_fit_their_columns() {
    use tokio_postgres::types::Type;
    let mut rows = CopyRows::of(&[Type::INT4, Type::TEXT], 1);
    rows.push(&[&1_i32, &None::<String>]).unwrap();
    assert!(matches!(rows.push(&[&1_i32, &2_i32]), Err(Error::Row { column: 1, .. })));
    assert!(matches!(rows.push(&[&1_i32]), Err(Error::Row { column: 1, .. })));
}
