//! `ValidateTurn`: grpc → app (batch) → store::entries → domain::turn, or for a WINDOWED queue store::queues → store::windows →
//! domain::windowed_entry.

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_storage::postgres::Postgres;
use onsale_types::Timestamp;

use super::App;
use crate::{
    domain::{
        policy::QueueMode,
        refusal::Refusal,
        turn::{TurnCheck, TurnKey, ValidTurn},
        windowed_entry::WindowedEntry,
    },
    error::Error,
    store::{blocked_customers, entries, queues, windows},
};

/// Reads the facts about all turns of a batch in one statement.
pub(crate) struct CheckTurnProcessor(pub(crate) Postgres);

impl Processor<TurnKey> for CheckTurnProcessor {
    type Output = (TurnCheck, Timestamp);
    type Error = Error;

    async fn process(&self, items: &[TurnKey]) -> BatchOutcome<(TurnCheck, Timestamp), Error> {
        match entries::turn_checks(&self.0, items).await {
            Ok(checks) => BatchOutcome::Answered(checks.into_iter().map(Ok).collect()),
            Err(error) => BatchOutcome::Failed(error),
        }
    }
}

impl App {
    /// Returns the turn if it may be used for a purchase now.
    pub(crate) async fn validate_turn(&self, turn: TurnKey) -> Result<ValidTurn, Error> {
        let (check, now) = self.turn_checks.submit(turn).await?;
        // Without a stored turn the queue may be WINDOWED.
        if check.newest_fencing_number.is_none()
            && let Some(valid) = self.validate_windowed(turn).await?
        {
            return Ok(valid);
        }
        Ok(check.validate(now)?)
    }

    /// Validates the turn of a WINDOWED queue. Returns `None` if the queue is not WINDOWED or does not exist.
    async fn validate_windowed(&self, turn: TurnKey) -> Result<Option<ValidTurn>, Error> {
        let (postgres, defaults) = (&self.engine.stores.postgres, &self.engine.defaults);
        let current = match queues::read(postgres, turn.event_id, defaults).await {
            Ok(current) if current.queue.policy.mode == QueueMode::Windowed => current,
            Ok(_) | Err(Error::Refused(Refusal::EventNotFound { .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        let used_by = windows::used_by(postgres, turn.event_id, turn.fencing_number).await?;
        if blocked_customers::is_blocked(postgres, turn.event_id, turn.customer_id).await? {
            return Err(Refusal::CustomerBlocked.into());
        }
        let entry = WindowedEntry::of_turn(turn, current.now);
        Ok(Some(entry.validate(&current.queue, &current.line, used_by, current.now)?))
    }
}
