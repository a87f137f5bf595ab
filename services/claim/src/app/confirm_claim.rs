//! `ConfirmClaim` and `payment.confirmed`: grpc or workers::consumers → app → clients::inventory → engine::claim_writer.
//!
//! A paid claim ends with units or with a refund. The payment is recorded first; from then on nothing releases the claim. The
//! settlement then takes one step after the other. Each step is idempotent and may run in several processes at the same time. Only
//! the hold that the claim uses is ever committed, and a settlement replaces it under the lock of the claim's row: two settlements
//! of one claim can neither sell twice nor lose a unit.
//!
//! The labels of transactions are label values of metrics, so they keep older words than the functions.

use onsale_storage::{
    idempotency::{self, Answer, Request},
    postgres,
};
use onsale_types::{HoldId, RequestId};

use super::App;
use crate::{
    clients::{self, inventory::CommitOutcome},
    domain::{
        Claim, ClaimLifecycle, ConfirmClaim, HoldAttempt, HoldRequest, PaidByAnother, Reservation,
        ReserveUnits, Selection, SettlementStep, total,
    },
    error::Error,
    store,
};

/// Limit of settlement steps in one call. An undisturbed settlement needs at most four.
const STEPS_MAX: u32 = 10;

/// Reasons for which a request has no stored response.
enum RecallError {
    Unknown,
    Failed(Error),
}

impl App {
    /// Confirms a claim and stores the response. A repeated request returns the stored response. The response is stored after the
    /// effect, in a transaction of its own, because the effect is idempotent.
    pub(crate) async fn confirm_claim_once(
        &self,
        command: ConfirmClaim,
        request: &Request<'_, Claim>,
    ) -> Result<Answer<Claim>, Error> {
        if let Some(answer) = self.recall_response(request).await? {
            return Ok(answer);
        }
        let claim = &self.confirm_claim(command).await?;
        self.stores
            .postgres
            .transaction("remember answer", |transaction| async move {
                request.once(&transaction, async { Ok::<_, Error>(claim.clone()) }).await
            })
            .await
    }

    /// Settles a payment. The returned claim is CONFIRMED, or RELEASED with REJECTED. A repetition changes nothing.
    pub(crate) async fn confirm_claim(&self, command: ConfirmClaim) -> Result<Claim, Error> {
        let mut claim = self.record_payment(command).await?;
        for _ in 0..STEPS_MAX {
            claim = match claim.lifecycle.next_step() {
                SettlementStep::Done => return Ok(claim),
                SettlementStep::CommitHold => self.commit_hold(claim).await?,
                SettlementStep::ReleaseHold => {
                    self.releaser.release(claim.hold_id).await?;
                    self.get_claim(claim.id, None).await?
                }
                SettlementStep::ReserveUnits => self.reserve_again(claim).await?,
            };
        }
        Err(Error::Contended { what: "the settlement" })
    }

    /// Records the payment. Refuses a second payment and a wrong amount.
    async fn record_payment(&self, command: ConfirmClaim) -> Result<Claim, Error> {
        let claim_id = command.claim_id;
        let recorded = self
            .stores
            .postgres
            .transaction("note payment", |transaction| async move {
                let locked = store::claims::lock(&transaction, claim_id).await?;
                let (claim, now) = locked.ok_or(Error::ClaimNotFound { claim_id })?;
                if command.amount != claim.total {
                    return Err(Error::AmountMismatch { claim_id });
                }
                // A released claim needs room within the customer's limit again.
                let key = (claim.event.id, claim.customer_id);
                let allowance = store::allowances::lock_one(&transaction, key).await?;
                let has_room = allowance.check_limit(claim.unit_count()).is_ok();
                let paid = claim.lifecycle.record_payment(command.payment_id, has_room);
                let lifecycle =
                    paid.map_err(|PaidByAnother(payment_id)| Error::PaidByAnother { claim_id, payment_id })?;
                self.writer.save(&transaction, claim, lifecycle, now).await
            })
            .await?;
        self.writer.after_commit();
        Ok(recorded)
    }

    async fn commit_hold(&self, claim: Claim) -> Result<Claim, Error> {
        match self.inventory.commit_hold(claim.hold_id).await? {
            CommitOutcome::Committed => {
                self.change_lifecycle("complete claim", &claim, ClaimLifecycle::confirm).await
            }
            CommitOutcome::Released => {
                self.change_lifecycle("lose hold", &claim, ClaimLifecycle::lose_hold).await
            }
        }
    }

    /// Changes the lifecycle of a claim, unless another settlement has replaced its hold or settled it since it was read.
    async fn change_lifecycle(
        &self,
        label: &'static str,
        seen: &Claim,
        change: fn(ClaimLifecycle) -> Option<ClaimLifecycle>,
    ) -> Result<Claim, Error> {
        let (claim_id, hold_id) = (seen.id, seen.hold_id);
        let changed = self
            .stores
            .postgres
            .transaction(label, |transaction| async move {
                let locked = store::claims::lock(&transaction, claim_id).await?;
                let (claim, now) = locked.ok_or(Error::ClaimNotFound { claim_id })?;
                match change(claim.lifecycle) {
                    Some(lifecycle) if claim.hold_id == hold_id => {
                        self.writer.save(&transaction, claim, lifecycle, now).await
                    }
                    Some(_) | None => Ok(claim),
                }
            })
            .await?;
        self.writer.after_commit();
        Ok(changed)
    }

    /// Replaces the lost hold of a paid claim: by the same seats, or else by as many units. Rejects the claim if neither can be
    /// reserved.
    async fn reserve_again(&self, claim: Claim) -> Result<Claim, Error> {
        for (number, selections) in claim.substitutes().iter().enumerate() {
            // Each substitute has a key of its own, because a hold id stands for one selection.
            let hold_key = RequestId::derive(claim.id.as_uuid(), &format!("substitute {number}")).as_uuid();
            let request = HoldRequest { hold_key, fingerprint: hold_key, claim_id: Some(claim.id) };
            let latest = store::hold_attempts::latest(&self.stores.postgres, hold_key).await?;
            let attempt = HoldAttempt::next(latest, request);
            let hold_id = attempt.hold_id;
            if !store::hold_attempts::begin(&self.stores.postgres, &[attempt]).await?.contains(&hold_id) {
                // Another settlement has just used or abandoned the attempt.
                return self.get_claim(claim.id, None).await;
            }
            match self.reserve_substitute(&claim, hold_id, selections).await {
                Ok(None) => {
                    // Inventory has released this hold; the next attempt has a new id.
                    self.releaser.abandon(hold_id).await;
                    return Ok(claim);
                }
                Ok(Some(reservation)) if total(&reservation.items) == Ok(Some(claim.total)) => {
                    return self.replace_hold(&claim, hold_id, &reservation).await;
                }
                // The substitute costs more or less than what was paid, or cannot be reserved.
                Ok(Some(_)) | Err(clients::Error::Refused { .. }) => self.releaser.abandon(hold_id).await,
                Err(error) => return Err(error.into()),
            }
        }
        tracing::warn!(claim_id = %claim.id, "no units left for a paid claim, rejecting it");
        self.change_lifecycle("reject claim", &claim, ClaimLifecycle::reject).await
    }

    async fn reserve_substitute(
        &self,
        claim: &Claim,
        hold_id: HoldId,
        selections: &[Selection],
    ) -> Result<Option<Reservation>, clients::Error> {
        let reserve = ReserveUnits {
            hold_id,
            event_id: claim.event.id,
            customer_id: claim.customer_id,
            selections,
            // Invitation tokens are not stored, so the units come from the public sale.
            invitation: None,
            release_after: self.release_after,
        };
        self.inventory.reserve_units(&reserve).await
    }

    /// Moves the claim to the new hold. If another settlement was faster, the new hold is released.
    async fn replace_hold(
        &self,
        seen: &Claim,
        new_hold_id: HoldId,
        reservation: &Reservation,
    ) -> Result<Claim, Error> {
        let (claim_id, old_hold_id) = (seen.id, seen.hold_id);
        let is_replaced = self
            .stores
            .postgres
            .transaction("replace hold", |transaction| async move {
                let locked = store::claims::lock(&transaction, claim_id).await?;
                let (claim, _) = locked.ok_or(Error::ClaimNotFound { claim_id })?;
                if claim.hold_id != old_hold_id || claim.lifecycle.replace_hold().is_none() {
                    return Ok::<_, Error>(false);
                }
                store::claims::replace_hold(&transaction, claim_id, new_hold_id, &reservation.items).await
            })
            .await?;
        if !is_replaced {
            self.releaser.abandon(new_hold_id).await;
        }
        self.get_claim(claim_id, None).await
    }

    /// Returns the stored response of the request, if there is one. Refuses a request id that was used with another body.
    async fn recall_response(&self, request: &Request<'_, Claim>) -> Result<Option<Answer<Claim>>, Error> {
        let recalled = self
            .stores
            .postgres
            .transaction("recall answer", |transaction| async move {
                // The error rolls the transaction back, so the lookup leaves no row.
                request.once(&transaction, async { Err(RecallError::Unknown) }).await
            })
            .await;
        match recalled {
            Ok(answer) => Ok(Some(answer)),
            Err(RecallError::Unknown) => Ok(None),
            Err(RecallError::Failed(error)) => Err(error),
        }
    }
}

impl From<postgres::Error> for RecallError {
    fn from(error: postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<idempotency::Error> for RecallError {
    fn from(error: idempotency::Error) -> Self {
        Self::Failed(error.into())
    }
}
