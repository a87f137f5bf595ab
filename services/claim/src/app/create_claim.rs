//! `CreateClaim`: turn, hold, claim.
//!
//! The hold's id is written down before Inventory is asked for it. The transaction that makes the claim takes the hold's
//! row, and so does the reconciler that gives up what became no claim: whoever is second finds it gone. A retry joins the
//! attempt that is under way, and begins a new one, with a new hold, when that was given up.
//!
//! Nothing is written for who has no right: a turn is proven by its signature and by Queue before anything else is done, and
//! what is noted for an invitation that Inventory does not know is forgotten at once. What claims that come together write,
//! they write together ([`precheck`], [`insert`]). The attempt is also the memory of the request: with a claim on it, a repeat is
//! answered with that claim.

mod insert;
mod precheck;

use onsale_kit::{config::Secret, error::Chain};
use onsale_storage::idempotency;
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, RequestId, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

pub use insert::{Insert, Prepared};
pub use precheck::{Enter, Entered, Entering};

use super::App;
use crate::{
    clients::{
        self,
        inventory::{self, Reserve},
        queue::Validity,
    },
    domain::{Buyer, Claim, Origin, Reservation, Selection, Stage, Turn, TurnToken, unit_count},
    error::Error,
    metrics,
    store::{self, hold_attempts::Want},
};

/// What a customer wants to claim.
#[derive(Clone, Debug)]
pub struct CreateClaim {
    /// Names the wish.
    pub request_id: RequestId,
    /// Of the request's body; nobody can read the body from it.
    pub fingerprint: Uuid,
    /// Who.
    pub customer: CustomerId,
    /// Where mails go; none without a verified address.
    pub buyer: Option<Buyer>,
    /// In which event.
    pub event: EventId,
    /// By which right.
    pub right: Right,
    /// What.
    pub selections: Vec<Selection>,
}

/// What gives the right to buy.
#[derive(Clone, Debug)]
pub enum Right {
    /// The token of a turn.
    Turn(Secret),
    /// The token of an invitation, which Inventory knows.
    Invitation(Secret),
}

/// What a turn token says besides whose it is and when it ends.
#[derive(Debug, Deserialize)]
struct TurnClaims {
    event_id: EventId,
    fencing_number: u64,
}

/// A right as far as it is proven.
enum Proven<'a> {
    /// A turn that Queue vouches for, and when it ends.
    Turn { fencing_number: u64, end: Timestamp },
    /// An invitation that Inventory has yet to look at.
    Invitation(&'a Secret),
}

impl CreateClaim {
    /// What the hold is for: one wish of one customer.
    fn want(&self) -> Want {
        let cause = Uuid::new_v5(&self.customer.as_uuid(), self.request_id.as_uuid().as_bytes());
        Want { cause, fingerprint: self.fingerprint, claim: None }
    }
}

impl App {
    /// Holds units for the customer. Done before, it answers the claim as it is.
    pub async fn create_claim(&self, command: CreateClaim) -> Result<Claim, Error> {
        match Box::pin(self.try_create(&command)).await {
            Ok(claim) => Ok(claim),
            // It may have been done before, so that its right is used up; or its twin, done just now, stands in the way.
            Err(error) => match self.done_before(&command).await {
                Ok(Some(claim)) => Ok(claim),
                Ok(None) => Err(error),
                Err(reused @ Error::Idempotency(_)) => Err(reused),
                Err(failure) => {
                    tracing::debug!(error = %Chain(&failure), "failed to look for an earlier claim of a request");
                    Err(error)
                }
            },
        }
    }

    async fn try_create(&self, command: &CreateClaim) -> Result<Claim, Error> {
        let buyer = command.buyer.clone().ok_or(Error::EmailNotVerified)?;
        let right = self.prove(command).await?;
        let entering = Entering {
            want: command.want(),
            request_id: command.request_id,
            event: command.event,
            customer: command.customer,
            unit_count: unit_count(&command.selections),
        };
        let hold = match self.entering.submit(entering).await? {
            Entered::Attempt(hold) => hold,
            Entered::Done(claim) => return self.get_claim(claim, None).await,
        };
        let reservation = self.reserve(command, hold, &right).await?;
        let (origin, turn_end) = match right {
            Proven::Turn { fencing_number, end } => (Origin::Turn { fencing_number }, Some(end)),
            Proven::Invitation(_) => {
                let quota = reservation.quota.ok_or(clients::Error::answer(inventory::NAME, "quota_id"))?;
                (Origin::Invitation { quota }, None)
            }
        };
        let (claim, customer) = (ClaimId::generate(), command.customer);
        self.insert(Prepared { claim, customer, buyer, origin, turn_end, hold, reservation }).await
    }

    /// The right that the request names, if it is genuine, the caller's and not over.
    async fn prove<'a>(&self, command: &'a CreateClaim) -> Result<Proven<'a>, Error> {
        let token = match &command.right {
            Right::Turn(token) => token,
            Right::Invitation(token) => return Ok(Proven::Invitation(token)),
        };
        let turn = self.turn(command, token)?;
        match self.queue.validate_turn(&turn).await? {
            Validity::Until(end) => Ok(Proven::Turn { fencing_number: turn.fencing_number, end }),
            Validity::Unknown => Err(Error::TurnTokenInvalid),
        }
    }

    /// The turn of the token, if it is genuine, the caller's and not over.
    fn turn(&self, command: &CreateClaim, token: &Secret) -> Result<Turn, Error> {
        let read = self.turns.read::<TurnClaims>(token.expose()).map_err(|_fault| Error::TurnTokenInvalid)?;
        let token = TurnToken {
            customer: CustomerId::parse(&read.subject).map_err(|_malformed| Error::TurnTokenInvalid)?,
            event: read.claims.event_id,
            fencing_number: read.claims.fencing_number,
            expire_time: read.expiry,
        };
        Ok(token.check(command.customer, command.event, self.clock.now())?)
    }

    async fn reserve(
        &self,
        command: &CreateClaim,
        hold: HoldId,
        right: &Proven<'_>,
    ) -> Result<Reservation, Error> {
        let reserve = Reserve {
            hold,
            event: command.event,
            customer: command.customer,
            selections: &command.selections,
            invitation: match right {
                Proven::Turn { .. } => None,
                Proven::Invitation(token) => Some(*token),
            },
            release_after: self.release_after(),
        };
        let reserved = self.inventory.reserve(&reserve).await;
        if let Err(error) = &reserved
            && inventory::is_refused_for_good(error)
        {
            self.discard(hold).await;
        }
        let Some(reservation) = reserved? else {
            // Inventory gave it back before we could use it; the next try has a new one.
            self.abandon_hold(hold).await;
            return Err(Error::Contended { what: "the hold" });
        };
        Ok(reservation)
    }

    /// Makes the claim, with others that are at the same point. Refused, its hold goes back before the answer.
    async fn insert(&self, prepared: Prepared) -> Result<Claim, Error> {
        let hold = prepared.hold;
        let made: Result<Claim, Error> = self.inserting.submit(prepared).await.map_err(Error::from);
        match &made {
            Ok(_) => metrics::changed(Stage::Claimed),
            // Somebody else has the hold, or has given it up, and sees to it.
            Err(Error::Contended { .. }) => {}
            Err(error) if error.is_refusal() => self.try_release_hold(hold).await,
            Err(_) => {}
        }
        made
    }

    /// The claim that the request has made, if it has; refuses its id with another body.
    async fn done_before(&self, command: &CreateClaim) -> Result<Option<Claim>, Error> {
        let latest = store::hold_attempts::latest(&self.stores.postgres, command.want().cause).await?;
        let Some(latest) = latest else { return Ok(None) };
        if latest.fingerprint != command.fingerprint {
            let id = command.request_id.as_uuid();
            return Err(idempotency::Error::RequestIdReused { id }.into());
        }
        match latest.claim {
            Some(claim) => self.get_claim(claim, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// Forgets an attempt that can never come to anything. Should it fail, the reconciler gives it up as any other.
    async fn discard(&self, hold: HoldId) {
        if let Err(error) = store::hold_attempts::discard(&self.stores.postgres, hold).await {
            tracing::debug!(%hold, error = %Chain(&error), "failed to forget an attempt, giving it up later");
        }
    }

    /// How long Inventory keeps a hold without hearing of it: longer than a claim on it can live.
    pub(super) fn release_after(&self) -> std::time::Duration {
        self.claims.lifetime_max().saturating_add(self.holds.keep_longer)
    }
}
