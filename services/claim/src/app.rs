//! The use cases. Each orders its steps and owns its transactions; the domain decides.
//!
//! Invariants between the steps, whatever process dies in between:
//! - Unauthorized callers never cause a write that outlasts their call.
//! - A hold attempt is stored before Inventory is called, so every reserved hold is found again.
//! - A claim is released here first and at Inventory later; until then its hold is due for release in `hold_attempt`.
//! - A payment is recorded before its hold is committed, and a claim with a payment is never released.

mod confirm_claim;
mod create_claim;
mod expire_claims;
mod extend_claim;
mod get_claim;
mod list_claims;
mod payment_failed;
mod queue_expired;
mod reconcile_holds;
mod release_claim;

use std::{fmt, sync::Arc, time::Duration};

use onsale_kit::{auth::TokenReader, batcher::Batcher};
use onsale_storage::Stores;
use onsale_types::Clock;
use tokio::sync::Notify;

use crate::{
    clients::{inventory::Inventory, queue::Queue},
    config::{ClaimsConfig, HoldsConfig},
    domain::{Claim, NewClaim, PrecheckItem, PrecheckOutcome},
    engine::{ClaimWriter, HoldReleaser},
    error::Error,
};

pub(crate) use create_claim::{InsertProcessor, PrecheckProcessor};

/// State that handlers, consumers and workers share.
pub(crate) struct App {
    pub(crate) stores: Stores,
    pub(crate) queue: Queue,
    pub(crate) inventory: Inventory,
    pub(crate) turn_tokens: TokenReader,
    /// Checks the expiry of turn tokens. All other times are the database's.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) prechecks: Batcher<PrecheckItem, PrecheckOutcome, Error>,
    pub(crate) inserts: Batcher<NewClaim, Claim, Error>,
    pub(crate) writer: ClaimWriter,
    pub(crate) releaser: HoldReleaser,
    pub(crate) claims: ClaimsConfig,
    pub(crate) holds: HoldsConfig,
    /// Age at which Inventory releases a hold by itself; longer than a claim on the hold can live.
    pub(crate) release_after: Duration,
    /// Starts the worker `release holds` early.
    pub(crate) release_hint: Arc<Notify>,
}

impl fmt::Debug for App {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("App").field("claims", &self.claims).finish_non_exhaustive()
    }
}
