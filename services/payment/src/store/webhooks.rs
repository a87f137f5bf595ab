//! Webhooks that were taken, so that a repeat is known.

use std::time::Duration;

use onsale_storage::postgres::{Error, Postgres, Transaction};
use onsale_types::{PaymentId, Timestamp};

use crate::domain::Provider;

// Waits for a transaction that takes the same one right now, and then finds it taken.
const INSERT: &str = "INSERT INTO webhook (provider, event_id, event_type, payment_id, received_at)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
const FORGET: &str = "DELETE FROM webhook WHERE ctid IN (
        SELECT ctid FROM webhook WHERE stored_at < now() - make_interval(secs => $1) LIMIT $2
        FOR UPDATE SKIP LOCKED)";

/// A webhook to be taken.
#[derive(Clone, Debug)]
pub struct NewWebhook<'a> {
    /// Whose.
    pub provider: Provider,
    /// The provider's id of the event.
    pub event_id: &'a str,
    /// The provider's name for what happened.
    pub event_type: &'a str,
    /// What it is about.
    pub payment_id: Option<PaymentId>,
    /// When the gateway received it.
    pub receive_time: Timestamp,
}

/// Notes a webhook; false when it was taken before.
pub async fn insert(transaction: &Transaction, webhook: &NewWebhook<'_>) -> Result<bool, Error> {
    let inserted = transaction
        .execute(
            INSERT,
            &[
                &webhook.provider.name(),
                &webhook.event_id,
                &webhook.event_type,
                &webhook.payment_id.map(|id| id.as_uuid()),
                &webhook.receive_time.to_system_time(),
            ],
        )
        .await?;
    Ok(inserted > 0)
}

/// Forgets up to `max` webhooks older than `retention`; answers how many. The retention must be longer than any provider
/// goes on sending.
pub async fn forget(postgres: &Postgres, retention: Duration, max: i64) -> Result<u64, Error> {
    postgres.execute("forget webhooks", FORGET, &[&retention.as_secs_f64(), &max]).await
}
