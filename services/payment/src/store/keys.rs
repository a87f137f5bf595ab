//! Names of all Redis channels of Payment. Payment stores no value in Redis.

use onsale_storage::redis::{Key, KeyError, Keyspace};
use onsale_types::PaymentId;

/// Returns the channel that tells watchers of a payment to read it again.
pub(crate) fn changes(keys: &Keyspace, payment_id: PaymentId) -> Result<Key, KeyError> {
    keys.key("changes", payment_id)
}
