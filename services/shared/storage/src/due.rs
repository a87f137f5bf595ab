//! Tables whose rows are work that falls due: a worker leases due rows, and a failed attempt is retried after a backoff.
//!
//! [`due_table!`](crate::due_table) describes a table and builds its statements, so that each is one static text:
//!
//! 1. [`DueTable::lease`] takes due rows for one worker. It moves their due time to the end of the lease and counts an
//!    attempt, so a row whose worker dies falls due again. No two workers lease the same row.
//! 2. The store ends the work by its own update: a row that no longer meets the table's condition is never due.
//! 3. [`DueTable::reschedule`] puts a failed attempt off. It leaves rows alone that were leased again or no longer meet
//!    the condition.
//! 4. [`DueTable::make_due`] sets the time of the next attempt.
//!
//! Times are the database's: the clocks of the workers never decide.

use std::time::Duration;

use onsale_types::Id;

use crate::postgres::row::SqlCount;
use crate::postgres::{Error, Postgres, Row, Transaction};

/// Bounds of a wait that doubles with every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffBounds {
    /// Longest wait after the first attempt.
    pub initial: Duration,
    /// Longest wait after any attempt.
    pub max: Duration,
}

impl BackoffBounds {
    /// Returns the bounds of a wait that does not grow.
    #[must_use]
    pub const fn fixed(wait: Duration) -> Self {
        Self { initial: wait, max: wait }
    }
}

/// The statements of a table of due work.
#[derive(Clone, Copy, Debug)]
pub struct DueTable {
    lease: &'static str,
    reschedule: &'static str,
    make_due: &'static str,
}

impl DueTable {
    /// Takes the statements that [`due_table!`](crate::due_table) builds.
    #[doc(hidden)]
    #[must_use]
    pub const fn from_statements(
        lease: &'static str,
        reschedule: &'static str,
        make_due: &'static str,
    ) -> Self {
        Self { lease, reschedule, make_due }
    }

    /// Leases at most `rows_max` due rows, the longest due first, and returns the columns that the table's `returning` names;
    /// an attempt count among them includes this attempt. The lease lasts `lease.initial` for the first attempt, twice as long
    /// for each further one, and at most `lease.max`.
    ///
    /// If the connection breaks, the statement runs again; rows that the first run leased then stay leased until their end.
    pub async fn lease(
        &self,
        postgres: &Postgres,
        label: &'static str,
        lease: BackoffBounds,
        rows_max: u32,
    ) -> Result<Vec<Row>, Error> {
        let (initial, max) = (lease.initial.as_secs_f64(), lease.max.as_secs_f64());
        postgres.query(label, self.lease, &[&initial, &max, &SqlCount(rows_max)]).await
    }

    /// Puts the next attempt of a failed row off and returns true, unless the row was leased again since its
    /// attempt number `attempts`. The wait is drawn from the upper half of a span that is `backoff.initial` after the first
    /// attempt and doubles up to `backoff.max`, so that rows which failed together spread.
    pub async fn reschedule(
        &self,
        postgres: &Postgres,
        label: &'static str,
        id: impl Id,
        attempts: u32,
        backoff: BackoffBounds,
    ) -> Result<bool, Error> {
        let (initial, max) = (backoff.initial.as_secs_f64(), backoff.max.as_secs_f64());
        let parameters = (id.as_uuid(), SqlCount(attempts));
        let rescheduled =
            postgres.execute(label, self.reschedule, &[&parameters.0, &parameters.1, &initial, &max]).await?;
        Ok(rescheduled > 0)
    }

    /// Sets the due time to `wait` from now, for the rows whose `make_due_by` column is `id` and that meet the condition. This
    /// ends a lease too.
    pub async fn make_due(
        &self,
        postgres: &Postgres,
        label: &'static str,
        id: impl Id,
        wait: Duration,
    ) -> Result<(), Error> {
        let parameters = (id.as_uuid(), wait.as_secs_f64());
        postgres.execute(label, self.make_due, &[&parameters.0, &parameters.1]).await.map(drop)
    }

    /// Like [`DueTable::make_due`], in a transaction.
    pub async fn make_due_in(
        &self,
        transaction: &Transaction,
        id: impl Id,
        wait: Duration,
    ) -> Result<(), Error> {
        let parameters = (id.as_uuid(), wait.as_secs_f64());
        transaction.execute(self.make_due, &[&parameters.0, &parameters.1]).await.map(drop)
    }
}

/// Builds the [`DueTable`](crate::due::DueTable) of a table; every value is SQL text.
///
/// ```
/// use onsale_storage::due::DueTable;
///
/// const SETTLEMENTS: DueTable = onsale_storage::due_table! {
///     table: "payment",
///     id: "payment_id",
///     due: "step_at",
///     attempts: "step_attempts",
///     condition: "step = 'SETTLE'",
///     make_due_by: "payment_id",
///     returning: "payment_id, step_attempts",
/// };
/// ```
///
/// - `id`: key column, a UUID.
/// - `due`: `timestamptz` column with the time from which a worker may lease the row.
/// - `attempts`: integer column that counts leases. Without it (`attempts: none`) every lease counts as attempt 0: leases and
///   backoffs do not grow, and `reschedule` does not see whether the row was leased again.
/// - `condition`: rows that are work; of the table's own columns and constants. An index on `due` should have it.
/// - `make_due_by`: UUID column by which `make_due` selects rows.
/// - `returning`: columns that `lease` returns.
#[macro_export]
macro_rules! due_table {
    (
        table: $table:literal, id: $id:literal, due: $due:literal, attempts: none,
        condition: $condition:expr, make_due_by: $by:literal, returning: $returning:literal $(,)?
    ) => {
        $crate::due_table!(@build $table, $id, $due, "0", "", $condition, $by, $returning)
    };
    (
        table: $table:literal, id: $id:literal, due: $due:literal, attempts: $attempts:literal,
        condition: $condition:expr, make_due_by: $by:literal, returning: $returning:literal $(,)?
    ) => {
        $crate::due_table!(
            @build $table, $id, $due, $attempts, concat!(", ", $attempts, " = ", $attempts, " + 1"),
            $condition, $by, $returning
        )
    };
    (
        @build $table:literal, $id:literal, $due:literal, $attempts:literal, $count:expr,
        $condition:expr, $by:literal, $returning:literal
    ) => {
        $crate::due::DueTable::from_statements(
            concat!(
                "UPDATE ", $table, " SET ", $due, " = now() + make_interval(secs => ",
                "least($2::float8, $1::float8 * power(2, least(", $attempts, ", 30))))", $count,
                " WHERE ", $id, " IN (SELECT ", $id, " FROM ", $table,
                " WHERE (", $condition, ") AND ", $due, " <= now()",
                " ORDER BY ", $due, " LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING ", $returning
            ),
            concat!(
                "UPDATE ", $table, " SET ", $due, " = now() + make_interval(secs => ",
                "least($4::float8, $3::float8 * power(2, least(greatest(", $attempts, " - 1, 0), 30)))",
                " * (0.5 + random() / 2)) WHERE ", $id, " = $1 AND ", $attempts, " = $2 AND (", $condition, ")"
            ),
            concat!(
                "UPDATE ", $table, " SET ", $due, " = now() + make_interval(secs => $2)",
                " WHERE ", $by, " = $1 AND (", $condition, ")"
            ),
        )
    };
}
