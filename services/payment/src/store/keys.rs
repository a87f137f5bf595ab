//! Every key that Payment has in Redis: none but the channels of hints. Nothing is kept there.

use onsale_storage::redis::{Key, KeyError, Keyspace};
use onsale_types::PaymentId;

/// The channel on which watchers of a payment are told to look again.
pub fn changes(keys: &Keyspace, payment: PaymentId) -> Result<Key, KeyError> {
    keys.key("changes", payment)
}
