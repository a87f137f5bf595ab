//! Event `queue.expired`: workers::consumers → app → store::claims → engine::claim_writer.

use onsale_storage::postgres::Transaction;

use super::App;
use crate::{domain::EndedTurn, error::Error, store};

impl App {
    /// Releases the open claim of a turn that ended before its time, in the event's transaction.
    pub(crate) async fn queue_expired(
        &self,
        transaction: &Transaction,
        turn: EndedTurn,
    ) -> Result<(), Error> {
        let EndedTurn { event_id, customer_id, fencing_number, reason } = turn;
        let locked =
            store::claims::lock_open_of_turn(transaction, event_id, customer_id, fencing_number).await?;
        if let Some(locked) = locked {
            self.writer.release_all(transaction, vec![locked], reason).await?;
        }
        Ok(())
    }
}
