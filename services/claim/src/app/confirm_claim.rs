//! `ConfirmClaim` and `payment.confirmed`: a paid claim ends with units or with the money going back.
//!
//! The payment is noted first; from then on nobody can give the claim up. Then one step after the other, each of which may
//! run any number of times and in several processes at once, until the claim is settled. Only the hold that the claim
//! stands on is ever committed, and it is put on another one by whoever has its row's lock: so two settlements of one
//! claim can neither sell twice nor lose a unit.

use onsale_proto::claim::v1::ConfirmClaimResponse;
use onsale_storage::{idempotency, postgres};
use onsale_types::{ClaimId, HoldId, Money, PaymentId, RequestId};

use super::App;
use crate::{
    clients::{
        self,
        inventory::{Commit, Reserve},
    },
    convert,
    domain::{Claim, Life, PaidByAnother, Reservation, Selection, Step, total},
    error::Error,
    store::{
        self,
        hold_attempts::{Attempt, Want},
    },
};

/// More steps than any settlement needs that is not disturbed again and again.
const STEPS_MAX: u32 = 10;

/// A payment for a claim.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmClaim {
    /// The claim.
    pub claim: ClaimId,
    /// The payment, which is confirmed.
    pub payment: PaymentId,
    /// What was paid.
    pub amount: Money,
}

/// The outcome of looking for a stored answer.
enum Recall {
    Unknown,
    Failed(Error),
}

impl App {
    /// As [`App::confirm_claim`], remembering the answer. It is kept apart from the effect, which is idempotent by itself.
    pub async fn confirm_claim_once(
        &self,
        command: ConfirmClaim,
        request: &idempotency::Request<'_>,
    ) -> Result<ConfirmClaimResponse, Error> {
        if let Some(answer) = self.recall(request).await? {
            return Ok(answer);
        }
        let claim = &self.confirm_claim(command).await?;
        self.stores
            .postgres
            .transaction("remember answer", |tx| async move {
                let work = async { Ok(ConfirmClaimResponse { claim: Some(convert::claim_to_pb(claim)) }) };
                idempotency::once(&tx, request, work).await
            })
            .await
    }

    /// Settles a payment: the answer is CONFIRMED, or RELEASED and REJECTED. Repeated, it changes nothing.
    pub async fn confirm_claim(&self, command: ConfirmClaim) -> Result<Claim, Error> {
        let mut claim = self.note_payment(command).await?;
        for _ in 0..STEPS_MAX {
            claim = match claim.life.next_step() {
                Step::Done => return Ok(claim),
                Step::Commit => self.commit(claim).await?,
                Step::FinishRelease => {
                    self.release_hold(claim.hold).await?;
                    self.get_claim(claim.id, None).await?
                }
                Step::Reserve => self.reserve_anew(claim).await?,
            };
        }
        Err(Error::Contended { what: "the settlement" })
    }

    /// Notes who paid; refuses a second payment and a wrong amount.
    async fn note_payment(&self, command: ConfirmClaim) -> Result<Claim, Error> {
        let id = command.claim;
        let noted = self
            .stores
            .postgres
            .transaction("note payment", |tx| async move {
                let locked = store::claims::lock(&tx, id).await?;
                let (claim, now) = locked.ok_or(Error::ClaimNotFound { claim: id })?;
                if command.amount != claim.total {
                    return Err(Error::AmountMismatch { claim: id });
                }
                // Only a claim that was given up has to fit in again.
                let allowance = store::allowances::lock_one(&tx, (claim.event.id, claim.customer)).await?;
                let has_room = allowance.check(claim.unit_count()).is_ok();
                let paid = claim.life.pay(command.payment, has_room);
                let life =
                    paid.map_err(|PaidByAnother(payment)| Error::PaidByAnother { claim: id, payment })?;
                self.change(&tx, claim, life, now).await
            })
            .await?;
        self.wake();
        Ok(noted)
    }

    async fn commit(&self, claim: Claim) -> Result<Claim, Error> {
        match self.inventory.commit(claim.hold).await? {
            Commit::Committed => self.advance("complete claim", &claim, Life::complete).await,
            Commit::Gone => self.advance("lose hold", &claim, Life::lose_hold).await,
        }
    }

    /// Takes one step of a claim's life, unless another settlement has put it on another hold or ended it.
    async fn advance(
        &self,
        label: &'static str,
        seen: &Claim,
        step: fn(Life) -> Option<Life>,
    ) -> Result<Claim, Error> {
        let (id, hold) = (seen.id, seen.hold);
        let advanced = self
            .stores
            .postgres
            .transaction(label, |tx| async move {
                let locked = store::claims::lock(&tx, id).await?;
                let (claim, now) = locked.ok_or(Error::ClaimNotFound { claim: id })?;
                match step(claim.life) {
                    Some(life) if claim.hold == hold => self.change(&tx, claim, life, now).await,
                    Some(_) | None => Ok(claim),
                }
            })
            .await?;
        self.wake();
        Ok(advanced)
    }

    /// Puts a claim whose units are gone on a new hold: of the same seats, else of as many units. Rejects it when there
    /// are none to be had.
    async fn reserve_anew(&self, claim: Claim) -> Result<Claim, Error> {
        for (number, selections) in claim.substitutes().iter().enumerate() {
            // Each substitute is a wish of its own: one hold id stands for one selection.
            let cause = RequestId::derive(claim.id.as_uuid(), &format!("substitute {number}")).as_uuid();
            let want = Want { cause, fingerprint: cause, claim: Some(claim.id) };
            let latest = store::hold_attempts::latest(&self.stores.postgres, cause).await?;
            let attempt = Attempt::after(latest, want);
            let hold = attempt.hold;
            if !store::hold_attempts::attempt(&self.stores.postgres, &[attempt]).await?.contains(&hold) {
                // Another settlement has just used it, or given it up.
                return self.get_claim(claim.id, None).await;
            }
            match self.reserve_substitute(&claim, hold, selections).await {
                Ok(None) => {
                    // Inventory gave it back by itself; the next attempt has a new id.
                    self.abandon_hold(hold).await;
                    return Ok(claim);
                }
                Ok(Some(reservation)) if total(&reservation.items) == Ok(Some(claim.total)) => {
                    return self.replace_hold(&claim, hold, &reservation).await;
                }
                // Of another price than what was paid.
                Ok(Some(_)) | Err(clients::Error::Refused { .. }) => self.abandon_hold(hold).await,
                Err(error) => return Err(error.into()),
            }
        }
        tracing::warn!(claim_id = %claim.id, "a paid claim is rejected, no units can be had for it");
        self.advance("reject claim", &claim, Life::reject).await
    }

    async fn reserve_substitute(
        &self,
        claim: &Claim,
        hold: HoldId,
        selections: &[Selection],
    ) -> Result<Option<Reservation>, clients::Error> {
        let reserve = Reserve {
            hold,
            event: claim.event.id,
            customer: claim.customer,
            selections,
            // Nobody keeps the token. What is left of the public sale has to do.
            invitation: None,
            release_after: self.release_after(),
        };
        self.inventory.reserve(&reserve).await
    }

    /// Puts the claim on the new hold, unless another settlement was faster; then the new one goes back.
    async fn replace_hold(
        &self,
        seen: &Claim,
        new: HoldId,
        reservation: &Reservation,
    ) -> Result<Claim, Error> {
        let (id, old) = (seen.id, seen.hold);
        let is_replaced = self
            .stores
            .postgres
            .transaction("replace hold", |tx| async move {
                let locked = store::claims::lock(&tx, id).await?;
                let (claim, _) = locked.ok_or(Error::ClaimNotFound { claim: id })?;
                if claim.hold != old || claim.life.replace_hold().is_none() {
                    return Ok::<_, Error>(false);
                }
                store::claims::replace_hold(&tx, id, new, &reservation.items).await
            })
            .await?;
        if !is_replaced {
            self.abandon_hold(new).await;
        }
        self.get_claim(id, None).await
    }

    /// What `request` was answered when it was done; refuses its id with another body.
    async fn recall(
        &self,
        request: &idempotency::Request<'_>,
    ) -> Result<Option<ConfirmClaimResponse>, Error> {
        let recalled = self
            .stores
            .postgres
            .transaction("recall answer", |tx| async move {
                // Failing ends the transaction, so that looking leaves nothing behind.
                idempotency::once(&tx, request, async { Err(Recall::Unknown) }).await
            })
            .await;
        match recalled {
            Ok(answer) => Ok(Some(answer)),
            Err(Recall::Unknown) => Ok(None),
            Err(Recall::Failed(error)) => Err(error),
        }
    }
}

impl From<postgres::Error> for Recall {
    fn from(error: postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<idempotency::Error> for Recall {
    fn from(error: idempotency::Error) -> Self {
        Self::Failed(error.into())
    }
}
