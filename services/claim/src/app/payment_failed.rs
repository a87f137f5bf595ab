//! Event `payment.failed`: workers::consumers → app → store::claims → engine::claim_writer.

use onsale_storage::postgres::Transaction;
use onsale_types::ClaimId;

use super::App;
use crate::{domain::ReleaseReason, error::Error, store};

impl App {
    /// Releases the claim of a failed payment in the event's transaction. A claim that another payment has paid, or that is
    /// released already, stays unchanged.
    pub(crate) async fn payment_failed(
        &self,
        transaction: &Transaction,
        claim_id: ClaimId,
    ) -> Result<(), Error> {
        if let Some(locked) = store::claims::lock(transaction, claim_id).await? {
            self.writer.release_all(transaction, vec![locked], ReleaseReason::PaymentFailed).await?;
        }
        Ok(())
    }
}
