//! Inbox of webhooks, by the provider's event id: a repeated webhook finds its row and changes nothing.

use std::time::Duration;

use onsale_storage::postgres::{
    Error, Postgres, Transaction,
    row::{SqlCount, SqlTime},
};
use onsale_types::{Named as _, PaymentId, Timestamp};

use crate::domain::Provider;

// Waits for a concurrent insert of the same row, and inserts nothing if that one commits.
const INSERT: &str = "INSERT INTO webhook (provider, event_id, event_type, payment_id, received_at)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
const DELETE_OLD: &str = "DELETE FROM webhook WHERE ctid IN (
        SELECT ctid FROM webhook WHERE stored_at < now() - make_interval(secs => $1) LIMIT $2
        FOR UPDATE SKIP LOCKED)";

#[derive(Clone, Debug)]
pub(crate) struct NewWebhook<'a> {
    pub(crate) provider: Provider,
    /// The provider's id of the event.
    pub(crate) event_id: &'a str,
    pub(crate) event_type: &'a str,
    /// `None` if the event is about no payment of ours.
    pub(crate) payment_id: Option<PaymentId>,
    /// Time at which the gateway received it.
    pub(crate) receive_time: Timestamp,
}

/// Inserts a webhook. Returns false if its event was inserted before.
pub(crate) async fn insert(transaction: &Transaction, webhook: &NewWebhook<'_>) -> Result<bool, Error> {
    let inserted = transaction
        .execute(
            INSERT,
            &[
                &webhook.provider.name(),
                &webhook.event_id,
                &webhook.event_type,
                &webhook.payment_id.map(|payment_id| payment_id.as_uuid()),
                &SqlTime(webhook.receive_time),
            ],
        )
        .await?;
    Ok(inserted > 0)
}

/// Deletes at most `rows_max` webhooks that are older than `retention` and returns their number. The retention must exceed the
/// time for which any provider repeats a webhook.
pub(crate) async fn delete_old(
    postgres: &Postgres,
    retention: Duration,
    rows_max: u32,
) -> Result<u64, Error> {
    let parameters = (retention.as_secs_f64(), SqlCount(rows_max));
    postgres.execute("forget webhooks", DELETE_OLD, &[&parameters.0, &parameters.1]).await
}
