//! `order.completed`: workers::consumers → app → complete_turn → engine::publish.

use onsale_storage::postgres::Transaction;
use onsale_types::ClaimId;

use super::App;
use crate::{domain::turn::TurnKey, error::Error};

impl App {
    /// Ends the turn of a completed order. A turn that can no longer be completed is logged and left as it is.
    pub(crate) async fn order_completed(
        &self,
        transaction: &Transaction,
        turn: TurnKey,
        claim_id: ClaimId,
    ) -> Result<(), Error> {
        match self.complete_turn_in(transaction, turn, claim_id).await {
            Ok((_, change)) => {
                if let Some(change) = change {
                    self.engine.publish_after_commit(transaction, change);
                }
                Ok(())
            }
            Err(Error::Refused(refusal)) => {
                let event_id = turn.event_id;
                tracing::info!(%event_id, %claim_id, %refusal, "order.completed ignored, its turn cannot be completed");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
