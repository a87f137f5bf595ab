//! `CreateClaim`: grpc → app → clients::queue → store::hold_attempts → clients::inventory → store::new_claims.
//!
//! 1. Verify the turn token by its signature and by a call to Queue. Inventory verifies an invitation with the reservation.
//! 2. Precheck: read what is stored about the request and its customer, and store an attempt to obtain a hold.
//! 3. Reserve the hold at Inventory.
//! 4. Insert: take the hold, lock the customer's allowance and create the claim.
//!
//! Requests that arrive together share the statements of steps 2 and 4 ([`PrecheckProcessor`], [`insert`]). The insert and
//! the reconciler, which abandons attempts without a claim, take the same row lock: the later of the two finds
//! another state. A retry joins the attempt that is under way, or starts a new one, with a new hold, once the first was abandoned. The attempt also
//! identifies the request: a repeat returns the claim that uses the attempt's hold.

mod insert;

use std::collections::HashMap;

use onsale_kit::{
    batcher::{BatchOutcome, Processor},
    config::Secret,
    error::Chain,
};
use onsale_storage::{idempotency, postgres::Postgres};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

pub(crate) use insert::InsertProcessor;

use super::App;
use crate::{
    clients::{self, inventory},
    domain::{
        Claim, CooldownRule, CreateClaim, Credential, HoldAttempt, NewClaim, Origin, PrecheckItem,
        PrecheckOutcome, Refusal, Reservation, ReserveUnits, TurnToken,
    },
    error::Error,
    metrics, store,
};

/// Claims of a turn token beyond the standard ones.
#[derive(Debug, Deserialize)]
struct TurnTokenClaims {
    event_id: EventId,
    fencing_number: u64,
}

/// A credential after step 1.
enum VerifiedCredential<'a> {
    Turn {
        fencing_number: u64,
        end: Timestamp,
    },
    /// Not verified yet: `ReserveUnits` does it.
    Invitation(&'a Secret),
}

impl App {
    /// Creates a claim. A repeated request returns its claim as it is now.
    pub(crate) async fn create_claim(&self, command: CreateClaim) -> Result<Claim, Error> {
        match Box::pin(self.try_create_claim(&command)).await {
            Ok(claim) => Ok(claim),
            // A repeat may fail because its turn has ended meanwhile, or because its twin has just created the claim.
            Err(error) => match self.find_created_claim(&command).await {
                Ok(Some(claim)) => Ok(claim),
                Ok(None) => Err(error),
                Err(reused @ Error::Idempotency(_)) => Err(reused),
                Err(failure) => {
                    let failure = Chain(&failure);
                    tracing::debug!(error = %failure, "failed to look for the claim of a repeated request");
                    Err(error)
                }
            },
        }
    }

    async fn try_create_claim(&self, command: &CreateClaim) -> Result<Claim, Error> {
        let buyer = command.buyer.clone().ok_or(Error::EmailNotVerified)?;
        let credential = self.verify_credential(command).await?;
        let item = PrecheckItem {
            hold_request: command.hold_request(),
            request_id: command.request_id,
            event_id: command.event_id,
            customer_id: command.customer_id,
            unit_count: command.unit_count(),
        };
        let hold_id = match self.prechecks.submit(item).await? {
            PrecheckOutcome::Reserve(attempt) => attempt.hold_id,
            PrecheckOutcome::Created(claim_id) => return self.get_claim(claim_id, None).await,
        };
        let reservation = self.reserve(command, hold_id, &credential).await?;
        let (origin, turn_end) = match credential {
            VerifiedCredential::Turn { fencing_number, end } => (Origin::Turn { fencing_number }, Some(end)),
            VerifiedCredential::Invitation(_) => {
                let missing = clients::Error::Response { neighbor: inventory::NAME, what: "quota_id" };
                (Origin::Invitation { quota_id: reservation.quota_id.ok_or(missing)? }, None)
            }
        };
        let (id, customer_id) = (ClaimId::generate(), command.customer_id);
        self.insert(NewClaim { id, customer_id, buyer, origin, turn_end, hold_id, reservation }).await
    }

    /// Verifies that a turn token is genuine, belongs to the caller, and that its turn has not ended.
    async fn verify_credential<'a>(&self, command: &'a CreateClaim) -> Result<VerifiedCredential<'a>, Error> {
        let token = match &command.credential {
            Credential::Turn(token) => token,
            Credential::Invitation(token) => return Ok(VerifiedCredential::Invitation(token)),
        };
        let token = self.turn_tokens.read::<TurnTokenClaims>(token.expose());
        let token = token.map_err(|_fault| Error::TurnTokenInvalid)?;
        let token = TurnToken {
            customer_id: CustomerId::parse(&token.subject).map_err(|_malformed| Error::TurnTokenInvalid)?,
            event_id: token.claims.event_id,
            fencing_number: token.claims.fencing_number,
            expire_time: token.expiry,
        };
        let turn = token.check(command.customer_id, command.event_id, self.clock.now())?;
        let end = self.queue.validate_turn(&turn).await?.ok_or(Error::TurnTokenInvalid)?;
        Ok(VerifiedCredential::Turn { fencing_number: turn.fencing_number, end })
    }
}

/// First batched step of `CreateClaim`: checks limits without locks and stores the hold attempts.
#[derive(Debug)]
pub(crate) struct PrecheckProcessor {
    pub(crate) postgres: Postgres,
    pub(crate) cooldown: CooldownRule,
}

impl Processor<PrecheckItem> for PrecheckProcessor {
    type Output = PrecheckOutcome;
    type Error = Error;

    async fn process(&self, items: &[PrecheckItem]) -> BatchOutcome<PrecheckOutcome, Error> {
        match self.precheck(items).await {
            Ok(outcomes) => BatchOutcome::Answered(outcomes),
            // Both statements can be repeated, so the batcher may split the batch.
            Err(error) if error.is_suspect() => BatchOutcome::Suspect(error),
            Err(error) => BatchOutcome::Failed(error),
        }
    }
}

impl PrecheckProcessor {
    async fn precheck(&self, items: &[PrecheckItem]) -> Result<Vec<Result<PrecheckOutcome, Error>>, Error> {
        let states = store::hold_attempts::precheck(&self.postgres, items).await?;
        let mut fingerprints: HashMap<Uuid, Uuid> = HashMap::with_capacity(items.len());
        let mut attempts: HashMap<HoldId, HoldAttempt> = HashMap::with_capacity(items.len());
        let mut outcomes = Vec::with_capacity(items.len());
        for (item, state) in items.iter().zip(&states) {
            // Two requests of one batch can share an id: refuse the second if its fingerprint differs.
            let request = item.hold_request;
            let first = *fingerprints.entry(request.hold_key).or_insert(request.fingerprint);
            let outcome = if first == request.fingerprint {
                item.decide(state, self.cooldown)
            } else {
                Err(Refusal::RequestIdReused(item.request_id))
            };
            if let Ok(PrecheckOutcome::Reserve(attempt)) = outcome {
                attempts.insert(attempt.hold_id, attempt);
            }
            outcomes.push(outcome.map_err(|refusal| refused(item.customer_id, refusal)));
        }
        if attempts.is_empty() {
            return Ok(outcomes);
        }
        let attempts: Vec<HoldAttempt> = attempts.into_values().collect();
        let begun = store::hold_attempts::begin(&self.postgres, &attempts).await?;
        let only_begun = |outcome| match outcome {
            Ok(PrecheckOutcome::Reserve(attempt)) if !begun.contains(&attempt.hold_id) => {
                Err(Error::Contended { what: "the same request" })
            }
            outcome => outcome,
        };
        Ok(outcomes.into_iter().map(only_begun).collect())
    }
}

impl App {
    /// Reserves the hold of an attempt. If Inventory refuses it for good, the attempt is deleted; a failed deletion leaves it to
    /// the reconciler.
    async fn reserve(
        &self,
        command: &CreateClaim,
        hold_id: HoldId,
        credential: &VerifiedCredential<'_>,
    ) -> Result<Reservation, Error> {
        let reserve = ReserveUnits {
            hold_id,
            event_id: command.event_id,
            customer_id: command.customer_id,
            selections: &command.selections,
            invitation: match credential {
                VerifiedCredential::Turn { .. } => None,
                VerifiedCredential::Invitation(token) => Some(*token),
            },
            release_after: self.release_after,
        };
        let reserved = self.inventory.reserve_units(&reserve).await;
        if let Err(error) = &reserved
            && inventory::is_permanent_refusal(error)
            && let Err(failure) = store::hold_attempts::delete(&self.stores.postgres, hold_id).await
        {
            tracing::debug!(%hold_id, error = %Chain(&failure), "failed to delete a hold attempt, abandoning it later");
        }
        let Some(reservation) = reserved? else {
            // Inventory has released this hold; a retry obtains a new one.
            self.releaser.abandon(hold_id).await;
            return Err(Error::Contended { what: "the hold" });
        };
        Ok(reservation)
    }

    /// Finds the claim that the request has already created. Fails if the request id was used with another body.
    async fn find_created_claim(&self, command: &CreateClaim) -> Result<Option<Claim>, Error> {
        let request = command.hold_request();
        let latest = store::hold_attempts::latest(&self.stores.postgres, request.hold_key).await?;
        let Some(latest) = latest else { return Ok(None) };
        if latest.fingerprint != request.fingerprint {
            let id = command.request_id.as_uuid();
            return Err(idempotency::Error::RequestIdReused { id }.into());
        }
        match latest.claim_id {
            Some(claim_id) => self.get_claim(claim_id, None).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Counts refusals for a cooldown, and returns the error for the caller.
fn refused(customer_id: CustomerId, refusal: Refusal) -> Error {
    if matches!(refusal, Refusal::Cooldown { .. }) {
        metrics::cooldown_refusal();
    }
    Error::refused(customer_id, refusal)
}
