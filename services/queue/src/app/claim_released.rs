//! `claim.released`: workers::consumers → app → store::lines (lock) → store::entries → engine::end_entries → engine::publish.

use onsale_storage::postgres::Transaction;

use super::App;
use crate::{
    domain::{
        entry::{EntryState, ExpireReason},
        queue_change::QueueChange,
        refusal::Refusal,
        turn::{ClaimReleaseReason, TurnKey},
    },
    error::Error,
    store::{entries, lines},
};

impl App {
    /// Ends the turn of a claim that expired or was rejected. Other releases leave the turn open.
    pub(crate) async fn claim_released(
        &self,
        transaction: &Transaction,
        turn: TurnKey,
        reason: ClaimReleaseReason,
    ) -> Result<(), Error> {
        if !reason.ends_turn() {
            return Ok(());
        }
        let mut current = match lines::lock(transaction, turn.event_id, &self.engine.defaults).await {
            Ok(current) => current,
            Err(Error::Refused(Refusal::EventNotFound { .. })) => return Ok(()),
            Err(error) => return Err(error),
        };
        let check = entries::turn_check_in(transaction, &turn).await?;
        let Some(entry) = check.entry.filter(|entry| entry.state == EntryState::Admitted) else {
            return Ok(());
        };
        let (ids, reason) = ([entry.entry_id], ExpireReason::TurnExpired);
        let ended = self.engine.end_entries(transaction, &mut current, &ids, reason).await?;
        self.engine.publish_after_commit(transaction, QueueChange::ended(&current, ended));
        Ok(())
    }
}
