//! Payments with their refunds. Every change of a payment's state goes through [`lock`] and [`save`], so that concurrent changes of
//! one payment wait for each other. Leases and due times change without the lock.
//!
//! Due times and timestamps are the database's: the clocks of the instances never decide.

use std::time::Duration;

use onsale_storage::{
    due::{BackoffBounds, DueTable},
    due_table,
    postgres::{
        Error, Postgres, Transaction,
        row::{RowExt as _, SqlTime},
    },
};
use onsale_types::{ClaimId, Named as _, PaymentId, Timestamp};

use super::rows;
use crate::domain::{NewPayment, Payment, PaymentState, PaymentStep};

/// Unique index that refuses a second open payment of a claim.
pub(crate) const OPEN_PER_CLAIM: &str = "payment_open_per_claim";

/// Builds a statement that selects payments with their refunds.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT payment.*, now() AS now, refund_id, refund.reason AS refund_reason,
                refund.state AS refund_state, refund.created_at AS refund_created_at,
                refund.completed_at AS refund_completed_at
            FROM payment LEFT JOIN refund USING (payment_id) ",
            $rest
        )
    };
}

/// Builds the due work of one step. A payment whose step has changed is no longer due here.
macro_rules! due_step {
    ($step:literal) => {
        due_table! {
            table: "payment",
            id: "payment_id",
            due: "step_at",
            attempts: "step_attempts",
            condition: concat!("step = '", $step, "'"),
            make_due_by: "payment_id",
            returning: "payment_id, step_attempts",
        }
    };
}

const INITIALIZE: DueTable = due_step!("INITIALIZE");
const POLL_PROVIDER: DueTable = due_step!("ASK");
const SETTLE: DueTable = due_step!("SETTLE");
const REFUND: DueTable = due_step!("REFUND");

const INSERT: &str = "INSERT INTO payment (payment_id, claim_id, event_id, customer_id, amount_minor,
        currency_code, provider, state, return_url, cancel_url, expires_at, step, step_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'INITIALIZING', $8, $9, now() + make_interval(secs => $10),
        'INITIALIZE', now() + make_interval(secs => $11))";
const GET: &str = select!("WHERE payment_id = $1");
const LOCK: &str = select!("WHERE payment_id = $1 FOR UPDATE OF payment");
const NEWEST: &str = select!("WHERE claim_id = $1 ORDER BY payment.created_at DESC, payment_id DESC LIMIT 1");
// A CONFIRMED payment that is not settled yet counts as open: it is about to pay for the claim.
const OPEN: &str = "SELECT payment_id FROM payment WHERE claim_id = $1
    AND (state IN ('INITIALIZING', 'PENDING') OR step = 'SETTLE')
    ORDER BY created_at LIMIT 1";
const UPDATE: &str = "UPDATE payment SET state = $2, reference = $3, charge = $4, checkout_url = $5,
        failure_reason = $6, confirmed_at = $7, settled_at = $8, step = $9,
        step_at = now() + make_interval(secs => $10), step_attempts = 0, amount_minor = $11, currency_code = $12
    WHERE payment_id = $1";
const UPSERT_REFUND: &str =
    "INSERT INTO refund (refund_id, payment_id, reason, state, created_at, completed_at)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (payment_id) DO UPDATE SET state = excluded.state, completed_at = excluded.completed_at";
// A refund that the provider accepted stays.
const WITHDRAW_REFUND: &str = "DELETE FROM refund WHERE payment_id = $1 AND state = 'PENDING'";

/// A payment whose row the transaction has locked.
#[derive(Debug)]
pub(crate) struct LockedPayment {
    pub(crate) payment: Payment,
    /// Start time of the transaction, by the database's clock.
    pub(crate) now: Timestamp,
}

/// A due step of a payment, leased to one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedStep {
    pub(crate) payment_id: PaymentId,
    /// Number of times the step was leased, this time included.
    pub(crate) attempts: u32,
}

/// Inserts an INITIALIZING payment. Its provider page lasts for `session_lifetime`. The step INITIALIZE falls due after
/// `initialize_timeout`, in case the creating call does not open a session before.
pub(crate) async fn insert(
    transaction: &Transaction,
    new: &NewPayment,
    session_lifetime: Duration,
    initialize_timeout: Duration,
) -> Result<(), Error> {
    transaction
        .execute(
            INSERT,
            &[
                &new.id.as_uuid(),
                &new.claim_id.as_uuid(),
                &new.event_id.as_uuid(),
                &new.customer_id.as_uuid(),
                &new.amount.amount_minor(),
                &new.amount.currency().code(),
                &new.provider.name(),
                &new.return_url,
                &new.cancel_url,
                &session_lifetime.as_secs_f64(),
                &initialize_timeout.as_secs_f64(),
            ],
        )
        .await
        .map(drop)
}

pub(crate) async fn get(postgres: &Postgres, payment_id: PaymentId) -> Result<Option<Payment>, Error> {
    let row = postgres.query_opt("get payment", GET, &[&payment_id.as_uuid()]).await?;
    row.as_ref().map(rows::payment).transpose()
}

/// Reads the newest payment of a claim.
pub(crate) async fn newest_of_claim(
    postgres: &Postgres,
    claim_id: ClaimId,
) -> Result<Option<Payment>, Error> {
    let row = postgres.query_opt("get payment of claim", NEWEST, &[&claim_id.as_uuid()]).await?;
    row.as_ref().map(rows::payment).transpose()
}

/// Reads the oldest payment of a claim that is INITIALIZING, PENDING, or confirmed and not yet settled.
pub(crate) async fn open_of_claim(
    transaction: &Transaction,
    claim_id: ClaimId,
) -> Result<Option<PaymentId>, Error> {
    let row = transaction.query_opt(OPEN, &[&claim_id.as_uuid()]).await?;
    row.map(|row| row.read_id("payment_id")).transpose()
}

/// Locks the row of a payment until the transaction ends.
pub(crate) async fn lock(
    transaction: &Transaction,
    payment_id: PaymentId,
) -> Result<Option<LockedPayment>, Error> {
    let Some(row) = transaction.query_opt(LOCK, &[&payment_id.as_uuid()]).await? else { return Ok(None) };
    Ok(Some(LockedPayment { payment: rows::payment(&row)?, now: row.read_time("now")? }))
}

/// Writes the changeable columns of a locked payment. Its next step, if any, falls due after `due_in`, with no attempt counted.
pub(crate) async fn save(
    transaction: &Transaction,
    payment: &Payment,
    due_in: Duration,
) -> Result<(), Error> {
    let step = payment.next_step();
    transaction
        .execute(
            UPDATE,
            &[
                &payment.id.as_uuid(),
                &payment.state.name(),
                &payment.reference,
                &payment.charge,
                // A customer must not pay on the page of a payment that has ended.
                &payment.checkout_url.as_deref().filter(|_| payment.state == PaymentState::Pending),
                &payment.failure_reason.map(|reason| reason.name()),
                &payment.confirm_time.map(SqlTime),
                &payment.settle_time.map(SqlTime),
                &step.map(|step| step.name()),
                &step.map(|_| due_in.as_secs_f64()),
                &payment.amount.amount_minor(),
                &payment.amount.currency().code(),
            ],
        )
        .await?;
    let Some(refund) = &payment.refund else { return Ok(()) };
    transaction
        .execute(
            UPSERT_REFUND,
            &[
                &refund.id,
                &payment.id.as_uuid(),
                &refund.reason.name(),
                &refund.state.name(),
                &SqlTime(refund.create_time),
                &refund.complete_time.map(SqlTime),
            ],
        )
        .await
        .map(drop)
}

/// Deletes the pending refund of a locked payment.
pub(crate) async fn withdraw_refund(transaction: &Transaction, payment_id: PaymentId) -> Result<(), Error> {
    transaction.execute(WITHDRAW_REFUND, &[&payment_id.as_uuid()]).await.map(drop)
}

/// Leases at most `rows_max` payments whose `step` is due. If the worker dies, the step is due again when the lease ends.
pub(crate) async fn lease_due(
    postgres: &Postgres,
    step: PaymentStep,
    lease: Duration,
    rows_max: u32,
) -> Result<Vec<LeasedStep>, Error> {
    let lease = BackoffBounds::fixed(lease);
    let rows = due_table(step).lease(postgres, "take due payments", lease, rows_max).await?;
    let leased = rows.iter().map(|row| {
        Ok(LeasedStep { payment_id: row.read_id("payment_id")?, attempts: row.read_count("step_attempts")? })
    });
    leased.collect()
}

/// Puts the next attempt of a leased `step` off. A payment whose step changed, or was leased again, stays as it is.
pub(crate) async fn reschedule(
    postgres: &Postgres,
    leased: LeasedStep,
    step: PaymentStep,
    backoff: BackoffBounds,
) -> Result<(), Error> {
    let LeasedStep { payment_id, attempts } = leased;
    due_table(step).reschedule(postgres, "put off payment", payment_id, attempts, backoff).await.map(drop)
}

/// Sets the due time of a payment's `step` to `wait` from now. Does nothing if the payment has another step.
pub(crate) async fn make_due(
    postgres: &Postgres,
    payment_id: PaymentId,
    step: PaymentStep,
    wait: Duration,
) -> Result<(), Error> {
    due_table(step).make_due(postgres, "hurry payment", payment_id, wait).await
}

const fn due_table(step: PaymentStep) -> &'static DueTable {
    match step {
        PaymentStep::Initialize => &INITIALIZE,
        PaymentStep::PollProvider => &POLL_PROVIDER,
        PaymentStep::Settle => &SETTLE,
        PaymentStep::Refund => &REFUND,
    }
}
