//! Tables of due work: leases, backoffs and rescheduling.

use std::collections::HashSet;
use std::time::Duration;

use onsale_storage::due::{BackoffBounds, DueTable};
use onsale_storage::postgres::row::RowExt as _;
use onsale_storage::postgres::{Error, Postgres, Row};
use onsale_testkit::stack::TestDatabase;
use onsale_types::{JobId, PaymentId};

use crate::support::{run_sql, sandbox};

const JOBS: DueTable = onsale_storage::due_table! {
    table: "job",
    id: "job_id",
    due: "due_at",
    attempts: "attempts",
    condition: "state = 'OPEN'",
    make_due_by: "job_id",
    returning: "job_id, attempts",
};
/// The same table without the attempts column.
const UNCOUNTED: DueTable = onsale_storage::due_table! {
    table: "job",
    id: "job_id",
    due: "due_at",
    attempts: none,
    condition: concat!("state = '", "OPEN", "'"),
    make_due_by: "payment_id",
    returning: "job_id",
};

const LEASE: BackoffBounds = BackoffBounds::fixed(Duration::from_secs(60));

async fn jobs(count: i32) -> (TestDatabase, Postgres) {
    let (database, postgres) = sandbox().await;
    run_sql(
        &database,
        "CREATE TABLE job (job_id uuid PRIMARY KEY, payment_id uuid NOT NULL, state text NOT NULL DEFAULT 'OPEN',
            due_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0)",
    )
    .await;
    let fill = "INSERT INTO job (job_id, payment_id) SELECT gen_random_uuid(), gen_random_uuid()
        FROM generate_series(1, $1)";
    postgres.execute("fill", fill, &[&count]).await.unwrap();
    (database, postgres)
}

async fn lease(postgres: &Postgres, rows_max: u32) -> Vec<(JobId, u32)> {
    let rows = JOBS.lease(postgres, "lease", LEASE, rows_max).await.unwrap();
    let job = |row: &Row| Ok::<_, Error>((row.read_id("job_id")?, row.read_count("attempts")?));
    rows.iter().map(|row| job(row).unwrap()).collect()
}

async fn only_job(postgres: &Postgres) -> JobId {
    postgres.query_one("the one", "SELECT job_id FROM job", &[]).await.unwrap().read_id("job_id").unwrap()
}

/// Seconds until the only job is due; negative if it is overdue.
async fn due_in(postgres: &Postgres) -> f64 {
    let sql = "SELECT extract(epoch FROM due_at - now())::float8 AS seconds FROM job";
    postgres.query_one("due in", sql, &[]).await.unwrap().read("seconds").unwrap()
}

async fn end_leases(postgres: &Postgres) {
    postgres.execute("end leases", "UPDATE job SET due_at = now()", &[]).await.unwrap();
}

#[tokio::test]
async fn workers_never_lease_the_same_row() {
    let (_database, postgres) = jobs(200).await;
    let worker = async || {
        let mut mine = Vec::new();
        loop {
            let leased = lease(&postgres, 7).await;
            assert!(leased.len() <= 7);
            if leased.is_empty() {
                return mine;
            }
            mine.extend(leased.into_iter().map(|(id, _)| id));
        }
    };
    let (one, two, three) = tokio::join!(worker(), worker(), worker());
    let all: Vec<JobId> = [one, two, three].concat();
    let distinct: HashSet<JobId> = all.iter().copied().collect();
    assert!(distinct.len() == all.len() && all.len() > 100, "{} of {}", distinct.len(), all.len());
}

#[tokio::test]
async fn expired_lease_is_leased_again_and_counts_an_attempt() {
    let (_database, postgres) = jobs(1).await;
    let id = only_job(&postgres).await;
    assert_eq!(lease(&postgres, 5).await, [(id, 1)]);
    assert_eq!(lease(&postgres, 5).await, []);
    let seconds = due_in(&postgres).await;
    assert!(seconds > 50.0 && seconds <= 60.0, "{seconds}");
    end_leases(&postgres).await;
    assert_eq!(lease(&postgres, 5).await, [(id, 2)]);
}

#[tokio::test]
async fn due_rows_are_leased_oldest_first_and_others_never() {
    let (_database, postgres) = jobs(3).await;
    let spread = "UPDATE job SET due_at = now() - make_interval(secs => place)
        FROM (SELECT job_id AS id, row_number() OVER (ORDER BY job_id) AS place FROM job) AS placed WHERE job_id = id";
    postgres.execute("spread", spread, &[]).await.unwrap();
    let rows = postgres.query("by due", "SELECT job_id FROM job ORDER BY due_at", &[]).await.unwrap();
    let oldest: JobId = rows[0].read_id("job_id").unwrap();
    let next: JobId = rows[1].read_id("job_id").unwrap();
    assert_eq!(lease(&postgres, 1).await, [(oldest, 1)]);
    let done = "UPDATE job SET state = 'DONE' WHERE job_id = $1";
    postgres.execute("done", done, &[&next.as_uuid()]).await.unwrap();
    assert_eq!(lease(&postgres, 5).await.len(), 1);
}

#[tokio::test]
async fn lease_doubles_with_the_attempts_up_to_its_maximum() {
    let (_database, postgres) = jobs(1).await;
    let bounds = BackoffBounds { initial: Duration::from_secs(10), max: Duration::from_secs(35) };
    for expected in [10.0, 20.0, 35.0, 35.0] {
        assert_eq!(JOBS.lease(&postgres, "lease", bounds, 1).await.unwrap().len(), 1);
        let seconds = due_in(&postgres).await;
        assert!(seconds > expected - 5.0 && seconds <= expected, "{seconds} of {expected}");
        end_leases(&postgres).await;
    }
    postgres.execute("many", "UPDATE job SET attempts = 2000000000", &[]).await.unwrap();
    assert_eq!(JOBS.lease(&postgres, "lease", bounds, 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn backoff_doubles_with_jitter_up_to_its_maximum() {
    let (_database, postgres) = jobs(1).await;
    let id = only_job(&postgres).await;
    let bounds = BackoffBounds { initial: Duration::from_secs(100), max: Duration::from_secs(350) };
    for (attempts, longest) in [(1, 100.0), (2, 200.0), (3, 350.0), (40, 350.0)] {
        let set = "UPDATE job SET attempts = $1 - 1, due_at = now()";
        postgres.execute("set", set, &[&attempts]).await.unwrap();
        let attempts = u32::try_from(attempts).unwrap();
        assert_eq!(lease(&postgres, 1).await, [(id, attempts)]);
        assert!(JOBS.reschedule(&postgres, "reschedule", id, attempts, bounds).await.unwrap());
        let seconds = due_in(&postgres).await;
        assert!(seconds > longest * 0.45 && seconds <= longest, "{seconds} of {longest}");
    }
}

#[tokio::test]
async fn a_row_leased_again_or_done_is_not_rescheduled() {
    let (_database, postgres) = jobs(1).await;
    let id = only_job(&postgres).await;
    lease(&postgres, 1).await;
    end_leases(&postgres).await;
    assert_eq!(lease(&postgres, 1).await, [(id, 2)]);
    assert!(!JOBS.reschedule(&postgres, "reschedule", id, 1, LEASE).await.unwrap());
    assert!(JOBS.reschedule(&postgres, "reschedule", id, 2, LEASE).await.unwrap());
    postgres.execute("done", "UPDATE job SET state = 'DONE'", &[]).await.unwrap();
    assert!(!JOBS.reschedule(&postgres, "reschedule", id, 2, LEASE).await.unwrap());
}

#[tokio::test]
async fn make_due_brings_a_row_forward_and_ends_its_lease() {
    let (_database, postgres) = jobs(1).await;
    let id = only_job(&postgres).await;
    lease(&postgres, 1).await;
    JOBS.make_due(&postgres, "make due", id, Duration::from_secs(20)).await.unwrap();
    let seconds = due_in(&postgres).await;
    assert!(seconds > 15.0 && seconds <= 20.0, "{seconds}");
    let table = &JOBS;
    postgres
        .transaction("make due", |transaction| async move {
            table.make_due_in(&transaction, id, Duration::ZERO).await
        })
        .await
        .unwrap();
    assert_eq!(lease(&postgres, 1).await, [(id, 2)]);
}

#[tokio::test]
async fn a_table_without_attempts_is_leased_rescheduled_and_made_due() {
    let (_database, postgres) = jobs(1).await;
    let id = only_job(&postgres).await;
    assert_eq!(UNCOUNTED.lease(&postgres, "lease", LEASE, 1).await.unwrap().len(), 1);
    assert!(due_in(&postgres).await > 50.0);
    let backoff = BackoffBounds { initial: Duration::from_secs(10), max: Duration::from_secs(20) };
    assert!(UNCOUNTED.reschedule(&postgres, "reschedule", id, 0, backoff).await.unwrap());
    assert!(due_in(&postgres).await <= 10.0);
    let payment = postgres.query_one("payment", "SELECT payment_id FROM job", &[]).await.unwrap();
    let payment_id: PaymentId = payment.read_id("payment_id").unwrap();
    UNCOUNTED.make_due(&postgres, "make due", payment_id, Duration::ZERO).await.unwrap();
    assert_eq!(lease(&postgres, 1).await, [(id, 1)]);
}
