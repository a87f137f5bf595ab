//! Turns, as Claim sees them: whether one holds, and how it ends.

use std::sync::Arc;

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_proto::queue::v1::CompleteTurnResponse;
use onsale_storage::{
    idempotency,
    postgres::{Postgres, Transaction},
};
use onsale_types::{ClaimId, EntryId, Timestamp};

use super::{App, tell::QueueChange};
use crate::{
    convert,
    domain::{
        entry::{Completion, Entry, EntryState, ExpireReason, Turn, TurnCheck, TurnKey},
        policy::QueueMode,
        refusal::Refusal,
    },
    error::Error,
    store::{entries, queues},
};

/// Looks up turns that are asked about at the same time, with one statement.
pub(crate) struct CheckTurnProcessor(pub(crate) Postgres);

impl Processor<TurnKey> for CheckTurnProcessor {
    type Output = (TurnCheck, Timestamp);
    type Error = Error;

    async fn process(&self, items: &[TurnKey]) -> BatchOutcome<(TurnCheck, Timestamp), Error> {
        match entries::turns(&self.0, items).await {
            Ok(checks) => BatchOutcome::Answered(checks.into_iter().map(Ok).collect()),
            Err(error) => BatchOutcome::Failed(error),
        }
    }
}

impl App {
    /// Whether a turn still holds.
    pub(crate) async fn validate_turn(&self, turn: TurnKey) -> Result<(EntryId, Turn), Error> {
        let (check, now) = self.checking.submit(turn).await?;
        // Nobody has it: maybe nobody's is stored.
        if check.newest_fencing_number.is_none()
            && let Some(held) = self.validate_ticket(turn).await?
        {
            return Ok(held);
        }
        let (entry, turn) = check.holds(now)?;
        Ok((entry.entry_id, turn))
    }

    /// Ends a turn with a purchase.
    pub(crate) async fn complete_turn(
        &self,
        turn: TurnKey,
        claim_id: ClaimId,
        request: &idempotency::Request<'_>,
    ) -> Result<CompleteTurnResponse, Error> {
        let work = |transaction: Transaction| async move {
            let (entry, news) = self.complete_in(&transaction, turn, claim_id).await?;
            Ok((convert::responses::completed(entry.as_ref()), news))
        };
        self.change_once("complete turn", request, work).await
    }

    /// An order was completed; its turn is over. A turn that cannot be completed any more is nobody's to mend.
    pub(crate) async fn order_completed(
        self: &Arc<Self>,
        transaction: &Transaction,
        turn: TurnKey,
        claim_id: ClaimId,
    ) -> Result<(), Error> {
        match self.complete_in(transaction, turn, claim_id).await {
            Ok((_, news)) => {
                if let Some(news) = news {
                    self.publish_after_commit(transaction, news);
                }
                Ok(())
            }
            Err(Error::Refused(refusal)) => {
                let event_id = turn.event_id;
                tracing::info!(%event_id, %claim_id, %refusal, "turn of a completed order is not completed");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A claim expired or was rejected; its turn is over.
    pub(crate) async fn claim_lost(
        self: &Arc<Self>,
        transaction: &Transaction,
        turn: TurnKey,
    ) -> Result<(), Error> {
        let TurnKey { event_id, customer_id, fencing_number } = turn;
        let mut current = match queues::lock(transaction, event_id, &self.defaults).await {
            Ok(current) => current,
            Err(Error::Refused(Refusal::EventNotFound { .. })) => return Ok(()),
            Err(error) => return Err(error),
        };
        let check = entries::turn_in(transaction, event_id, customer_id, fencing_number).await?;
        let Some(entry) = check.entry.filter(|entry| entry.state == EntryState::Admitted) else {
            return Ok(());
        };
        let ended = self.end(transaction, &mut current, &[entry.entry_id], ExpireReason::TurnExpired).await?;
        self.publish_after_commit(transaction, QueueChange::ended(&current, ended));
        Ok(())
    }

    /// Completes a turn; answers its entry, where entries are stored.
    async fn complete_in(
        &self,
        transaction: &Transaction,
        turn: TurnKey,
        claim_id: ClaimId,
    ) -> Result<(Option<Entry>, Option<QueueChange>), Error> {
        let TurnKey { event_id, customer_id, fencing_number } = turn;
        let mut current = queues::lock(transaction, event_id, &self.defaults).await?;
        if current.queue.policy.mode == QueueMode::Windowed {
            let is_used = self.complete_ticket(transaction, &mut current, turn, claim_id).await?;
            return Ok((None, is_used.then(|| QueueChange::steered(&current))));
        }
        let check = entries::turn_in(transaction, event_id, customer_id, fencing_number).await?;
        let (entry, was_open) = match check.completes(claim_id)? {
            Completion::Done(entry) => return Ok((Some(entry), None)),
            Completion::Complete { entry, was_open } => (entry, was_open),
        };
        current.line.touch();
        if let Some(turn) = entry.turn.filter(|_| was_open) {
            current.line.turn_ended(&turn, current.now);
        }
        current.line.count_end(entry.state, EntryState::Completed);
        queues::save_line(transaction, event_id, &current.line).await?;
        let entry =
            entries::complete(transaction, entry.entry_id, claim_id, current.line.revision, current.now)
                .await?;
        let news = QueueChange::ended(&current, vec![entry.clone()]);
        Ok((Some(entry), Some(news)))
    }
}
