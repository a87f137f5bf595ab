//! Giving claims up: by the customer, by expiry, by a failed payment, by a turn that was left.
//!
//! Here first, in one transaction that also notes that the hold is to be given back; then at Inventory. In the other order
//! a payment that arrives in between would find a claim that looks alive and has no units.

use onsale_kit::error::Chain;
use onsale_proto::claim::v1::ReleaseClaimResponse;
use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Timestamp};

use super::App;
use crate::{
    clients::inventory::Release,
    convert,
    domain::{Claim, ReleaseReason},
    error::Error,
    metrics, store,
};

/// A turn that ended before its time.
#[derive(Clone, Copy, Debug)]
pub struct TurnEnded {
    /// In which event.
    pub event: EventId,
    /// Whose.
    pub customer: CustomerId,
    /// Which of the customer's turns.
    pub fencing_number: u64,
    /// Why its claim is given up.
    pub reason: ReleaseReason,
}

impl App {
    /// Gives up a claim of `customer`, who wants it.
    pub async fn release_claim(
        &self,
        customer: CustomerId,
        id: ClaimId,
        request: &idempotency::Request<'_>,
    ) -> Result<ReleaseClaimResponse, Error> {
        let answer = self
            .stores
            .postgres
            .transaction("release claim", |tx| async move {
                let work = async {
                    let found = store::claims::lock(&tx, id).await?;
                    let own = found.filter(|(claim, _)| claim.customer == customer);
                    let (claim, now) = own.ok_or(Error::ClaimNotFound { claim: id })?;
                    let life = claim.life.release(ReleaseReason::Customer);
                    let life = life.map_err(|_paid| Error::ClaimConfirmed { claim: id })?;
                    let claim = self.change(&tx, claim, life, now).await?;
                    Ok::<_, Error>(ReleaseClaimResponse { claim: Some(convert::claim_to_pb(&claim)) })
                };
                idempotency::once(&tx, request, work).await
            })
            .await?;
        self.wake();
        // Before the answer, so that the customer's next look finds the units free; without Inventory a little later.
        for hold in store::hold_attempts::releasing_of_claim(&self.stores.postgres, id).await? {
            self.try_release_hold(hold).await;
        }
        Ok(answer)
    }

    /// Gives up a claim whose payment failed, in the transaction of the event that says so. A claim that is paid by another
    /// payment, or gone already, stays as it is.
    pub async fn release_unpaid(&self, tx: &Transaction, id: ClaimId) -> Result<(), Error> {
        if let Some(locked) = store::claims::lock(tx, id).await? {
            self.give_up(tx, vec![locked], ReleaseReason::PaymentFailed).await?;
        }
        Ok(())
    }

    /// Gives up the open claim of a turn that ended before its time, in the transaction of the event that says so.
    pub async fn release_of_turn(&self, tx: &Transaction, turn: TurnEnded) -> Result<(), Error> {
        let TurnEnded { event, customer, fencing_number, reason } = turn;
        if let Some(locked) = store::claims::lock_of_turn(tx, event, customer, fencing_number).await? {
            self.give_up(tx, vec![locked], reason).await?;
        }
        Ok(())
    }

    /// Gives up claims that were not paid in time, at most one batch; says how many.
    pub async fn expire_claims(&self) -> Result<usize, Error> {
        let batch_max = self.claims.expire_batch_max;
        let expired = self
            .stores
            .postgres
            .transaction("expire claims", |tx| async move {
                let locked = store::claims::lock_expired(&tx, batch_max).await?;
                let count = locked.len();
                self.give_up(&tx, locked, ReleaseReason::Expired).await?;
                Ok::<_, Error>(count)
            })
            .await?;
        if expired > 0 {
            tracing::info!(claim_count = expired, "unpaid claims expired");
            self.wake();
        }
        Ok(expired)
    }

    /// Gives up locked claims as far as they may be.
    async fn give_up(
        &self,
        tx: &Transaction,
        locked: Vec<(Claim, Timestamp)>,
        reason: ReleaseReason,
    ) -> Result<(), Error> {
        let Some((_, now)) = locked.first() else { return Ok(()) };
        let now = *now;
        let released = locked.into_iter().filter_map(|(claim, _)| {
            let life = claim.life.release(reason).ok()?;
            (life != claim.life).then_some((claim, life))
        });
        let released: Vec<_> = released.collect();
        if !released.is_empty() {
            self.change_all(tx, released, now).await?;
            // The commit is still to come; should the releaser look before it, it looks again soon.
            self.release_hint.notify_one();
        }
        Ok(())
    }

    /// Gives back a hold whose note says so, and takes the note off.
    pub async fn release_hold(&self, hold: HoldId) -> Result<(), Error> {
        let released = self.inventory.release(hold).await?;
        self.finish_releases(&[(hold, released)]).await
    }

    /// Takes off the notes of holds that Inventory has taken back.
    pub(super) async fn finish_releases(&self, released: &[(HoldId, Release)]) -> Result<(), Error> {
        for is_committed in [false, true] {
            let of = |release: Release| (release == Release::Committed) == is_committed;
            let holds: Vec<HoldId> =
                released.iter().filter(|(_, release)| of(*release)).map(|(hold, _)| *hold).collect();
            if is_committed && !holds.is_empty() {
                // Only holds of claims with a payment are committed, and those are never noted for release.
                tracing::error!(?holds, "holds that were to be given back are sold");
            }
            store::hold_attempts::finish(&self.stores.postgres, &holds, is_committed).await?;
        }
        metrics::holds_released(released.len());
        Ok(())
    }

    /// As [`App::release_hold`], now if possible: should it fail, the releaser does it later.
    pub(super) async fn try_release_hold(&self, hold: HoldId) {
        if let Err(error) = self.release_hold(hold).await {
            tracing::warn!(%hold, error = %Chain(&error), "failed to give back a hold, trying again later");
        }
    }

    /// Gives up an attempt that became no claim, and gives its hold back. Should any of it fail, the reconciler does it.
    pub(super) async fn abandon_hold(&self, hold: HoldId) {
        match store::hold_attempts::abandon(&self.stores.postgres, hold).await {
            Ok(true) => self.try_release_hold(hold).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%hold, error = %Chain(&error), "failed to give up a hold, trying again later");
            }
        }
    }
}
