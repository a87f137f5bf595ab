//! The use cases. Each orders its steps, owns its transactions, and leaves every decision to the domain.
//!
//! What holds between the steps, whatever dies in between:
//! - a hold is written down before Inventory is asked for it, so that no unit is set aside without a trace here;
//! - a claim is given up here first and at Inventory after, by a note that stays until it is done;
//! - a payment is noted before its hold is committed, and a claim with a payment is never given up.

mod confirm_claim;
mod create_claim;
mod read_claims;
mod reconcile;
mod release_claim;

use std::sync::Arc;

use onsale_kit::auth::TokenReader;
use onsale_storage::{Stores, messaging::NewEvent, postgres::Transaction};
use onsale_types::{Clock, Timestamp};
use tokio::sync::Notify;

pub use confirm_claim::ConfirmClaim;
pub use create_claim::{CreateClaim, Right};
pub use release_claim::TurnEnded;

use crate::{
    clients::{inventory::Inventory, queue::Queue},
    config::{ClaimsConfig, HoldsConfig},
    convert,
    domain::{Claim, Life, Stage},
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
    /// How long claims live.
    pub claims: ClaimsConfig,
    /// How holds are kept tidy.
    pub holds: HoldsConfig,
    /// Tells the releaser that there is a hold to give back. Forgetting it costs one interval.
    pub release_hint: Notify,
}

impl App {
    /// Brings a locked claim to `life` and tells others: the one way a claim changes. Without a change nothing is written.
    async fn change(
        &self,
        tx: &Transaction,
        claim: &Claim,
        life: Life,
        now: Timestamp,
    ) -> Result<Claim, Error> {
        if life == claim.life {
            return Ok(claim.clone());
        }
        let changed = store::claim::save(tx, claim, life, now).await?;
        if changed.life.stage() == claim.life.stage() {
            return Ok(changed);
        }
        let event = match changed.life.stage() {
            Stage::Claimed => return Ok(changed),
            Stage::Confirmed => NewEvent::new(changed.id, &convert::order_completed(&changed, now)),
            Stage::Released(_) => {
                NewEvent::new(changed.id, &convert::claim_released(&changed, changed.unit_count(), now))
            }
            // Its units were gone before.
            Stage::Rejected => NewEvent::new(changed.id, &convert::claim_released(&changed, 0, now)),
        };
        self.stores.outbox.append(tx, &[event]).await?;
        metrics::changed(changed.life.stage());
        Ok(changed)
    }

    /// To be called after a commit that wrote events or left a hold to be given back.
    fn wake(&self) {
        self.stores.outbox.wake_relay();
        self.release_hint.notify_one();
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").field("claims", &self.claims).finish_non_exhaustive()
    }
}
