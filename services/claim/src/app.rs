//! The use cases. Each orders its steps, owns its transactions, and leaves every decision to the domain.
//!
//! What holds between the steps, whatever dies in between:
//! - nothing is written for who has no right to claim;
//! - a hold is written down before Inventory is asked for it, so that no unit is set aside without a trace here;
//! - a claim is given up here first and at Inventory after, by a note that stays until it is done;
//! - a payment is noted before its hold is committed, and a claim with a payment is never given up.

mod confirm_claim;
mod create_claim;
mod extend_claim;
mod read_claims;
mod reconcile_holds;
mod release_claim;

use std::sync::Arc;

use onsale_kit::{auth::TokenReader, batcher::Batcher};
use onsale_storage::{Stores, messaging::NewEvent, postgres::Transaction};
use onsale_types::{Clock, Timestamp};
use tokio::sync::Notify;

pub use confirm_claim::ConfirmClaim;
pub use create_claim::{CreateClaim, Enter, Entered, Entering, Insert, Prepared, Right};
pub use extend_claim::ExtendClaim;
pub use release_claim::TurnEnded;

use crate::{
    clients::{inventory::Inventory, queue::Queue},
    config::{ClaimsConfig, HoldsConfig},
    convert,
    domain::{Claim, CooldownRule, Life, Stage},
    error::Error,
    metrics, store,
};

/// What handlers, consumers and workers share.
pub struct App {
    /// Postgres, Redis and events.
    pub stores: Stores,
    /// Who knows turns.
    pub queue: Queue,
    /// Who keeps units.
    pub inventory: Inventory,
    /// Reads turn tokens.
    pub turns: TokenReader,
    /// For the end of a turn token, before Queue is asked; all else goes by the database's clock.
    pub clock: Arc<dyn Clock>,
    /// Those who come to claim something at the same time.
    pub entering: Batcher<Entering, Entered, Error>,
    /// Claims that are made at the same time.
    pub inserting: Batcher<Prepared, Claim, Error>,
    /// How long claims live.
    pub claims: ClaimsConfig,
    /// Who has to wait before the next claim.
    pub cooldown: CooldownRule,
    /// How holds are kept tidy.
    pub holds: HoldsConfig,
    /// Tells the releaser that there is a hold to give back. Forgetting it costs one interval.
    pub release_hint: Notify,
}

impl App {
    /// Brings a locked claim to `life` and tells others. Without a change nothing is written.
    async fn change(
        &self,
        tx: &Transaction,
        claim: Claim,
        life: Life,
        now: Timestamp,
    ) -> Result<Claim, Error> {
        if life == claim.life {
            return Ok(claim);
        }
        let id = claim.id;
        self.change_all(tx, vec![(claim, life)], now).await?.pop().ok_or(Error::ClaimNotFound { claim: id })
    }

    /// Brings locked claims to other lives and tells others: the one way claims change. Answers them as they are then.
    async fn change_all(
        &self,
        tx: &Transaction,
        changes: Vec<(Claim, Life)>,
        now: Timestamp,
    ) -> Result<Vec<Claim>, Error> {
        let changed = store::claims::save(tx, &changes, now, self.cooldown).await?;
        let moved = changes
            .iter()
            .zip(&changed)
            .filter(|((before, _), after)| before.life.stage() != after.life.stage());
        let moved: Vec<&Claim> = moved.map(|(_, after)| after).collect();
        let events: Vec<NewEvent> = moved.iter().filter_map(|claim| told(claim, now)).collect();
        self.stores.outbox.append(tx, &events).await?;
        for claim in moved {
            metrics::changed(claim.life.stage());
        }
        Ok(changed)
    }

    /// To be called after a commit that wrote events or left a hold to be given back.
    fn wake(&self) {
        self.stores.outbox.wake_relay();
        self.release_hint.notify_one();
    }
}

/// What others hear of a claim that has come to another stage.
fn told(claim: &Claim, now: Timestamp) -> Option<NewEvent> {
    match claim.life.stage() {
        Stage::Claimed => None,
        Stage::Confirmed => Some(NewEvent::new(claim.id, &convert::order_completed(claim, now))),
        Stage::Released(_) => {
            Some(NewEvent::new(claim.id, &convert::claim_released(claim, claim.unit_count(), now)))
        }
        // Its units were gone before.
        Stage::Rejected => Some(NewEvent::new(claim.id, &convert::claim_released(claim, 0, now))),
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").field("claims", &self.claims).finish_non_exhaustive()
    }
}
