//! `CompleteTurn`: grpc → app → store::lines (lock) → store::entries → domain::turn → store → engine::publish.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::ClaimId;

use super::App;
use crate::{
    domain::{
        entry::{Entry, EntryState},
        policy::QueueMode,
        queue::QueueAndLine,
        queue_change::QueueChange,
        turn::{Completion, TurnKey},
        windowed_entry::{WindowedCompletion, WindowedEntry},
    },
    error::Error,
    store::{entries, lines, windows},
};

impl App {
    /// Ends a turn with a purchase. Returns the entry, or `None` in a WINDOWED queue, which stores no entries.
    pub(crate) async fn complete_turn(
        &self,
        turn: TurnKey,
        claim_id: ClaimId,
        request: &Request<'_, Option<Entry>>,
    ) -> Result<Answer<Option<Entry>>, Error> {
        let work = |transaction: Transaction| async move {
            self.complete_turn_in(&transaction, turn, claim_id).await
        };
        self.change_once("complete turn", request, work).await
    }

    /// Completes a turn in the caller's transaction. Returns no change if the turn was completed for this claim before.
    pub(crate) async fn complete_turn_in(
        &self,
        transaction: &Transaction,
        turn: TurnKey,
        claim_id: ClaimId,
    ) -> Result<(Option<Entry>, Option<QueueChange>), Error> {
        let mut current = lines::lock(transaction, turn.event_id, &self.engine.defaults).await?;
        if current.queue.policy.mode == QueueMode::Windowed {
            let is_new = complete_windowed(transaction, &mut current, turn, claim_id).await?;
            return Ok((None, is_new.then(|| QueueChange::controlled(&current))));
        }
        let check = entries::turn_check_in(transaction, &turn).await?;
        let (entry, was_open) = match check.complete(claim_id)? {
            Completion::Done(entry) => return Ok((Some(entry), None)),
            Completion::Complete { entry, was_open } => (entry, was_open),
        };
        let (line, now) = (&mut current.line, current.now);
        line.bump_revision();
        if let Some(turn) = entry.turn.filter(|_| was_open) {
            line.end_turn(&turn, now);
        }
        line.count_end(entry.state, EntryState::Completed);
        lines::save(transaction, turn.event_id, line).await?;
        let entry = entries::complete(transaction, entry.entry_id, claim_id, line.revision, now).await?;
        let change = QueueChange::ended(&current, vec![entry.clone()]);
        Ok((Some(entry), Some(change)))
    }
}

/// Marks an entry of a locked WINDOWED queue as used; returns false if it was used for this claim before.
async fn complete_windowed(
    transaction: &Transaction,
    current: &mut QueueAndLine,
    turn: TurnKey,
    claim_id: ClaimId,
) -> Result<bool, Error> {
    let entry = WindowedEntry::of_turn(turn, current.now);
    let used_by = windows::used_by_in(transaction, entry.event_id, entry.seq).await?;
    match entry.complete(&current.queue.policy, &current.line, used_by, claim_id)? {
        WindowedCompletion::Done => Ok(false),
        WindowedCompletion::MarkUsed => {
            current.line.bump_revision();
            current.line.completed_count = current.line.completed_count.saturating_add(1);
            lines::save(transaction, entry.event_id, &current.line).await?;
            windows::mark_used(transaction, &entry, claim_id, current.now).await?;
            Ok(true)
        }
    }
}
