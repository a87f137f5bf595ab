//! `CreateClaim`: turn, hold, claim.
//!
//! The hold's id is written down before Inventory is asked for it. The transaction that makes the claim takes the hold's
//! row, and so does the reconciler that gives up what became no claim: whoever is second finds it gone. A retry joins the
//! attempt that is under way, and begins a new one, with a new hold, when that was given up.

use onsale_proto::claim::v1::CreateClaimResponse;
use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, RequestId, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

use super::App;
use crate::{
    clients::{inventory::Reserve, queue::Validity},
    convert,
    domain::{
        Buyer, Claim, Life, Reservation, Selection, Stage, Transition, Turn, TurnToken, expire_time, total,
        unit_count,
    },
    error::Error,
    metrics,
    store::{
        self,
        hold::{Latest, Want},
    },
};

/// What a customer wants to claim.
#[derive(Clone, Debug)]
pub struct CreateClaim {
    /// Names the wish.
    pub request_id: RequestId,
    /// Of the request's body.
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
    Turn(String),
    /// The token of an invitation. None can be genuine yet.
    Invitation,
}

/// What a turn token says besides whose it is and when it ends.
#[derive(Debug, Deserialize)]
struct TurnClaims {
    event_id: EventId,
    fencing_number: u64,
}

/// What became of a request so far.
enum Prior {
    /// It is done.
    Done(Box<CreateClaimResponse>),
    /// It is not; the last hold asked for on its behalf.
    Open(Option<Latest>),
}

/// A claim about to be made.
struct Prepared<'a> {
    command: &'a CreateClaim,
    buyer: &'a Buyer,
    claim: ClaimId,
    turn: Turn,
    turn_end: Timestamp,
    hold: HoldId,
    reservation: &'a Reservation,
}

impl CreateClaim {
    /// What the hold is for: one wish of one customer.
    fn want(&self) -> Want {
        let cause = Uuid::new_v5(&self.customer.as_uuid(), self.request_id.as_uuid().as_bytes());
        Want { cause, fingerprint: self.fingerprint, claim: None }
    }
}

impl App {
    /// Holds units for the customer. Done before, it answers what it answered then.
    pub async fn create_claim(
        &self,
        command: &CreateClaim,
        request: &idempotency::Request<'_>,
    ) -> Result<CreateClaimResponse, Error> {
        let latest = match self.look_up(command, request).await? {
            Prior::Done(answer) => return Ok(*answer),
            Prior::Open(latest) => latest,
        };
        let made = self.try_create(command, latest, request).await;
        match made {
            // It may be its own twin, done just now, that stands in the way.
            Err(error) if error.is_refusal() => match self.look_up(command, request).await? {
                Prior::Done(answer) => Ok(*answer),
                Prior::Open(_) => Err(error),
            },
            made => made,
        }
    }

    /// What became of the request so far.
    async fn look_up(
        &self,
        command: &CreateClaim,
        request: &idempotency::Request<'_>,
    ) -> Result<Prior, Error> {
        let latest = store::hold::latest(&self.stores.postgres, command.want().cause).await?;
        if latest.is_some_and(|latest| latest.fingerprint != command.fingerprint) {
            let id = command.request_id.as_uuid();
            return Err(idempotency::Error::RequestIdReused { id }.into());
        }
        match latest.and_then(|latest| latest.claim) {
            Some(claim) => self.answer_again(claim, request).await.map(Box::new).map(Prior::Done),
            None => Ok(Prior::Open(latest)),
        }
    }

    async fn try_create(
        &self,
        command: &CreateClaim,
        latest: Option<Latest>,
        request: &idempotency::Request<'_>,
    ) -> Result<CreateClaimResponse, Error> {
        let buyer = command.buyer.as_ref().ok_or(Error::EmailNotVerified)?;
        let turn = self.turn(command)?;
        self.refuse_early(command).await?;
        let turn_end = match self.queue.validate_turn(&turn).await? {
            Validity::Until(end) => end,
            Validity::Unknown => return Err(Error::TurnTokenInvalid),
        };
        let hold = store::hold::attempt(&self.stores.postgres, command.want(), latest).await?;
        let hold = hold.ok_or(Error::Contended { what: "the same request" })?;
        let reserve = Reserve {
            hold,
            event: command.event,
            customer: command.customer,
            selections: &command.selections,
            release_after: self.release_after(),
        };
        let reservation = self.inventory.reserve(&reserve).await?;
        let (claim, reservation) = (ClaimId::generate(), &reservation);
        let prepared = Prepared { command, buyer, claim, turn, turn_end, hold, reservation };
        let made = self.insert(&prepared, request).await;
        if let Err(error) = &made
            && error.is_refusal()
        {
            self.abandon_hold(hold).await;
        }
        made
    }

    /// What the request was answered when it was done.
    async fn answer_again(
        &self,
        claim: ClaimId,
        request: &idempotency::Request<'_>,
    ) -> Result<CreateClaimResponse, Error> {
        self.stores
            .postgres
            .transaction("answer again", |tx| async move {
                let work = async {
                    // The answer is forgotten, after days; the claim is not.
                    let found = store::claim::lock(&tx, claim).await?;
                    let (claim, _) = found.ok_or(Error::Stored { what: "claim of a hold" })?;
                    Ok::<_, Error>(answer(&claim))
                };
                idempotency::once(&tx, request, work).await
            })
            .await
    }

    /// The turn of the token, if it is genuine, the caller's and not over.
    fn turn(&self, command: &CreateClaim) -> Result<Turn, Error> {
        let token = match &command.right {
            Right::Turn(token) => token,
            Right::Invitation => return Err(Error::InvitationTokenInvalid),
        };
        let read = self.turns.read::<TurnClaims>(token).map_err(|_fault| Error::TurnTokenInvalid)?;
        let token = TurnToken {
            customer: CustomerId::parse(&read.subject).map_err(|_malformed| Error::TurnTokenInvalid)?,
            event: read.claims.event_id,
            fencing_number: read.claims.fencing_number,
            expire_time: read.expiry,
        };
        Ok(token.check(command.customer, command.event, self.clock.now())?)
    }

    /// Says no before anything is reserved, as far as can be seen without a lock. The transaction looks again.
    async fn refuse_early(&self, command: &CreateClaim) -> Result<(), Error> {
        let (event, customer) = (command.event, command.customer);
        let glance = store::allowance::glance(&self.stores.postgres, event, customer).await?;
        if let Some(claim) = glance.open_claim {
            return Err(Error::ClaimOpenExists { claim });
        }
        if let Some(allowance) = glance.allowance {
            let checked = allowance.check(unit_count(&command.selections));
            checked.map_err(|exceeded| Error::LimitExceeded { customer, exceeded })?;
        }
        Ok(())
    }

    async fn insert(
        &self,
        prepared: &Prepared<'_>,
        request: &idempotency::Request<'_>,
    ) -> Result<CreateClaimResponse, Error> {
        if !prepared.reservation.is_held {
            // Inventory gave it back before we could use it.
            return Err(Error::Contended { what: "the hold" });
        }
        let made = self
            .stores
            .postgres
            .transaction("create claim", |tx| async move {
                let work = async {
                    let claim = self.insert_claim(&tx, prepared).await?;
                    Ok::<_, Error>(answer(&claim))
                };
                idempotency::once(&tx, request, work).await
            })
            .await?;
        metrics::changed(Stage::Claimed);
        Ok(made)
    }

    async fn insert_claim(&self, tx: &Transaction, prepared: &Prepared<'_>) -> Result<Claim, Error> {
        let Prepared { command, reservation, .. } = prepared;
        let (event, customer) = (command.event, command.customer);
        let (allowance, now) = store::allowance::enter(tx, event, customer, reservation.units_max).await?;
        if let Some(claim) = store::allowance::open_claim(tx, event, customer).await? {
            return Err(Error::ClaimOpenExists { claim });
        }
        let end = expire_time(now, prepared.turn_end, self.claims.window)
            .ok_or(Error::TurnExpired { expire_time: prepared.turn_end })?;
        let claim = prepared.claim(now, end)?;
        allowance
            .check(claim.unit_count())
            .map_err(|exceeded| Error::LimitExceeded { customer, exceeded })?;
        store::allowance::take(tx, event, customer, claim.unit_count()).await?;
        if !store::hold::hold(tx, prepared.hold, prepared.claim).await? {
            return Err(Error::Contended { what: "the hold" });
        }
        store::claim::insert(tx, &claim).await?;
        Ok(claim)
    }

    /// How long Inventory keeps a hold without hearing of it: longer than a claim on it can live.
    pub(super) fn release_after(&self) -> std::time::Duration {
        self.claims.window.saturating_add(self.holds.keep_longer)
    }
}

impl Prepared<'_> {
    fn claim(&self, now: Timestamp, expire_time: Timestamp) -> Result<Claim, Error> {
        let items = self.reservation.items.clone();
        let total = total(&items).ok().flatten().ok_or(Error::Stored { what: "price of a hold" })?;
        Ok(Claim {
            id: self.claim,
            customer: self.command.customer,
            event: self.reservation.event.clone(),
            buyer: self.buyer.clone(),
            items,
            total,
            fencing_number: self.turn.fencing_number,
            hold: self.hold,
            life: Life::BEGIN,
            create_time: now,
            expire_time,
            history: vec![Transition { stage: Stage::Claimed, time: now }],
        })
    }
}

fn answer(claim: &Claim) -> CreateClaimResponse {
    CreateClaimResponse { claim: Some(convert::claim_to_pb(claim)) }
}
