//! Payments and their refunds. Every change goes through [`lock`] and [`save`]: who changes a payment holds its row.
//!
//! Times are the database's: the clocks of several instances never decide anything.

use std::time::{Duration, SystemTime};

use onsale_storage::postgres::{Error, Postgres, Transaction, column};
use onsale_types::{ClaimId, PaymentId, Timestamp};

use super::rows;
use crate::domain::{NewPayment, Payment, State, Step};

/// Refuses a second open payment of a claim.
pub const OPEN_PER_CLAIM: &str = "payment_open_per_claim";

/// A payment with its refund, and the rest of a statement.
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

const INSERT: &str = "INSERT INTO payment (payment_id, claim_id, event_id, customer_id, amount_minor,
        currency_code, provider, state, return_url, cancel_url, expires_at, step, step_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'INITIALIZING', $8, $9, now() + make_interval(secs => $10),
        'INITIALIZE', now() + make_interval(secs => $11))";
const GET: &str = select!("WHERE payment_id = $1");
const LOCK: &str = select!("WHERE payment_id = $1 FOR UPDATE OF payment");
const NEWEST: &str = select!("WHERE claim_id = $1 ORDER BY payment.created_at DESC, payment_id DESC LIMIT 1");
// Money that is neither settled nor on its way back counts as open too: the claim is about to be paid.
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
// Whoever takes a payment has it for the lease; should they die, somebody takes it then.
const TAKE: &str = "UPDATE payment SET step_attempts = step_attempts + 1,
        step_at = now() + make_interval(secs => $2)
    WHERE payment_id IN (
        SELECT payment_id FROM payment WHERE step = $1 AND step_at <= now()
        ORDER BY step_at LIMIT $3 FOR UPDATE SKIP LOCKED)
    RETURNING payment_id, step_attempts";
// The wait doubles with every attempt and is drawn from its upper half, so that what failed together does not come back
// together. A payment that was changed or taken again since is not ours to put off.
const PUT_OFF: &str = "UPDATE payment SET step_at = now() + make_interval(secs =>
        least($5::float8, $4::float8 * power(2, least(step_attempts - 1, 20))) * (0.5 + random() / 2))
    WHERE payment_id = $1 AND step = $2 AND step_attempts = $3";
const HURRY: &str = "UPDATE payment SET step_at = now() + make_interval(secs => $3)
    WHERE payment_id = $1 AND step = $2";
// One that the provider accepted stays.
const WITHDRAW_REFUND: &str = "DELETE FROM refund WHERE payment_id = $1 AND state = 'PENDING'";

/// A payment whose row this transaction holds, and the time of the transaction.
#[derive(Debug)]
pub struct Locked {
    /// The payment.
    pub payment: Payment,
    /// Now, by the database.
    pub now: Timestamp,
}

/// A payment whose step is this worker's to do.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The payment.
    pub id: PaymentId,
    /// How often the step was taken up, this time included.
    pub attempts: i32,
}

/// How long to wait before a payment is taken up again.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// After the first attempt, at most.
    pub initial: Duration,
    /// After any, at most.
    pub max: Duration,
}

/// Inserts a payment that is INITIALIZING. Its provider's page is to last for `lifetime`; a worker takes it up after
/// `patience`, should nobody have brought it further by then.
pub async fn insert(
    transaction: &Transaction,
    new: &NewPayment,
    lifetime: Duration,
    patience: Duration,
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
                &lifetime.as_secs_f64(),
                &patience.as_secs_f64(),
            ],
        )
        .await
        .map(drop)
}

/// One payment.
pub async fn get(postgres: &Postgres, id: PaymentId) -> Result<Option<Payment>, Error> {
    let row = postgres.query_opt("get payment", GET, &[&id.as_uuid()]).await?;
    row.as_ref().map(rows::payment).transpose()
}

/// The newest payment of a claim.
pub async fn newest(postgres: &Postgres, claim: ClaimId) -> Result<Option<Payment>, Error> {
    let row = postgres.query_opt("get payment of claim", NEWEST, &[&claim.as_uuid()]).await?;
    row.as_ref().map(rows::payment).transpose()
}

/// The payment of a claim that is in progress.
pub async fn open(transaction: &Transaction, claim: ClaimId) -> Result<Option<PaymentId>, Error> {
    let row = transaction.query_opt(OPEN, &[&claim.as_uuid()]).await?;
    row.map(|row| column(&row, "payment_id").map(PaymentId::from_uuid)).transpose()
}

/// Takes the row of a payment, so that nobody else changes it meanwhile.
pub async fn lock(transaction: &Transaction, id: PaymentId) -> Result<Option<Locked>, Error> {
    let Some(row) = transaction.query_opt(LOCK, &[&id.as_uuid()]).await? else { return Ok(None) };
    Ok(Some(Locked { payment: rows::payment(&row)?, now: rows::time(&row, "now")? }))
}

/// Writes what can change of a payment whose row is held. Its next step is due after `due`.
pub async fn save(transaction: &Transaction, payment: &Payment, due: Duration) -> Result<(), Error> {
    let step = payment.next_step();
    transaction
        .execute(
            UPDATE,
            &[
                &payment.id.as_uuid(),
                &payment.state.name(),
                &payment.reference,
                &payment.charge,
                // Nobody is to pay on a page whose payment has ended.
                &payment.checkout_url.as_deref().filter(|_| payment.state == State::Pending),
                &payment.failure_reason.map(|reason| reason.name()),
                &optional_time(payment.confirm_time),
                &optional_time(payment.settle_time),
                &step.map(Step::name),
                &step.map(|_| due.as_secs_f64()),
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
                &refund.create_time.to_system_time(),
                &optional_time(refund.complete_time),
            ],
        )
        .await
        .map(drop)
}

/// Takes up to `max` payments whose `step` is due; nobody else takes them within `lease`.
pub async fn take_due(
    postgres: &Postgres,
    step: Step,
    lease: Duration,
    max: i64,
) -> Result<Vec<Taken>, Error> {
    let rows = postgres.query("take due payments", TAKE, &[&step.name(), &lease.as_secs_f64(), &max]).await?;
    let taken = |row| {
        let id = PaymentId::from_uuid(column(row, "payment_id")?);
        Ok(Taken { id, attempts: column(row, "step_attempts")? })
    };
    rows.iter().map(taken).collect()
}

/// Puts off the next attempt of a `step` that was done and is owed still.
pub async fn put_off(postgres: &Postgres, taken: Taken, step: Step, waits: Waits) -> Result<(), Error> {
    let (initial, longest) = (waits.initial.as_secs_f64(), waits.max.as_secs_f64());
    let id = taken.id.as_uuid();
    postgres
        .execute("put off payment", PUT_OFF, &[&id, &step.name(), &taken.attempts, &initial, &longest])
        .await
        .map(drop)
}

/// Has a worker take up a payment's `step` after `wait` instead of later.
pub async fn hurry(postgres: &Postgres, id: PaymentId, step: Step, wait: Duration) -> Result<(), Error> {
    let parameters = (id.as_uuid(), step.name(), wait.as_secs_f64());
    postgres.execute("hurry payment", HURRY, &[&parameters.0, &parameters.1, &parameters.2]).await.map(drop)
}

/// Takes back the refund of a payment whose row is held.
pub async fn withdraw_refund(transaction: &Transaction, id: PaymentId) -> Result<(), Error> {
    transaction.execute(WITHDRAW_REFUND, &[&id.as_uuid()]).await.map(drop)
}

fn optional_time(time: Option<Timestamp>) -> Option<SystemTime> {
    time.and_then(Timestamp::to_system_time)
}
