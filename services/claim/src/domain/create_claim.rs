//! The command `CreateClaim` and the rules that apply before a reservation, in order: the turn token, the attempt to obtain a hold,
//! and the precheck.

use std::time::Duration;

use onsale_kit::config::Secret;
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, RequestId, SectorId, Timestamp};
use uuid::Uuid;

use super::{Allowance, Buyer, CooldownRule, LimitExceeded};

/// A customer's request for a claim.
#[derive(Clone, Debug)]
pub(crate) struct CreateClaim {
    /// Idempotency key, created by the client. Together with the customer it identifies the request.
    pub(crate) request_id: RequestId,
    /// Hash of the request body, which does not reveal the body.
    pub(crate) fingerprint: Uuid,
    pub(crate) customer_id: CustomerId,
    /// `None`: the customer has no verified email address.
    pub(crate) buyer: Option<Buyer>,
    pub(crate) event_id: EventId,
    pub(crate) credential: Credential,
    pub(crate) selections: Vec<Selection>,
}

/// Token that entitles a customer to buy.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// Turn token, verified by its signature and by Queue.
    Turn(Secret),
    /// Invitation token, verified by Inventory.
    Invitation(Secret),
}

/// Units requested in one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) sector_id: SectorId,
    pub(crate) wanted: Wanted,
}

/// Number or choice of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This many units, the best ones that are free.
    Count(u32),
    /// The units with exactly these numbers.
    Units(Vec<u32>),
}

impl CreateClaim {
    /// Counts the requested units.
    pub(crate) fn unit_count(&self) -> u32 {
        self.selections.iter().fold(0, |sum, selection| {
            let count = match &selection.wanted {
                Wanted::Count(count) => *count,
                Wanted::Units(units) => u32::try_from(units.len()).unwrap_or(u32::MAX),
            };
            sum.saturating_add(count)
        })
    }

    /// Returns the hold request of this customer and request id, which every retry shares.
    pub(crate) fn hold_request(&self) -> HoldRequest {
        let hold_key = Uuid::new_v5(&self.customer_id.as_uuid(), self.request_id.as_uuid().as_bytes());
        HoldRequest { hold_key, fingerprint: self.fingerprint, claim_id: None }
    }
}

/// Contents of a turn token with a valid signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnToken {
    pub(crate) customer_id: CustomerId,
    pub(crate) event_id: EventId,
    /// Rises with every turn that Queue grants in the event, from 1.
    pub(crate) fencing_number: u64,
    /// End of the turn when the token was issued; Queue may have ended it earlier.
    pub(crate) expire_time: Timestamp,
}

/// A turn of the caller in the requested event. Only Queue knows whether it has not ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) customer_id: CustomerId,
    pub(crate) event_id: EventId,
    pub(crate) fencing_number: u64,
}

/// Refusal of a turn token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnError {
    /// The token belongs to another customer or event, or has no fencing number.
    Foreign,
    /// The turn ended at `expire_time`.
    Expired { expire_time: Timestamp },
}

impl TurnToken {
    /// Returns the turn if it belongs to the customer and event and has not ended at `now`.
    pub(crate) fn check(
        self,
        customer_id: CustomerId,
        event_id: EventId,
        now: Timestamp,
    ) -> Result<Turn, TurnError> {
        if self.customer_id != customer_id || self.event_id != event_id || self.fencing_number == 0 {
            return Err(TurnError::Foreign);
        }
        if self.expire_time <= now {
            return Err(TurnError::Expired { expire_time: self.expire_time });
        }
        Ok(Turn { customer_id, event_id, fencing_number: self.fencing_number })
    }
}

/// Need for a hold. Each attempt to satisfy it has a hold id of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldRequest {
    /// Idempotency key that all attempts share.
    pub(crate) hold_key: Uuid,
    /// Hash of the request body. The same key with another fingerprint is refused.
    pub(crate) fingerprint: Uuid,
    /// Claim that needs the hold, if it exists already.
    pub(crate) claim_id: Option<ClaimId>,
}

/// An attempt to obtain a hold from Inventory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldAttempt {
    pub(crate) hold_id: HoldId,
    /// Number of the attempt among those of its key, from 1.
    pub(crate) number: u32,
    pub(crate) request: HoldRequest,
}

/// Stored attempt with the highest number of a hold key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestAttempt {
    pub(crate) number: u32,
    /// True if the hold was or will be released: it cannot be obtained again.
    pub(crate) is_abandoned: bool,
    pub(crate) fingerprint: Uuid,
    /// Claim that uses the hold or needs it.
    pub(crate) claim_id: Option<ClaimId>,
}

impl HoldAttempt {
    /// Returns the attempt to make now: the latest one, or the next one if the latest was abandoned.
    pub(crate) fn next(latest: Option<LatestAttempt>, request: HoldRequest) -> Self {
        let number = latest.map_or(1, |latest| latest.number.saturating_add(u32::from(latest.is_abandoned)));
        let hold_id = HoldId::from_uuid(Uuid::new_v5(&request.hold_key, &number.to_be_bytes()));
        Self { hold_id, number, request }
    }
}

/// One request in a batched precheck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrecheckItem {
    pub(crate) hold_request: HoldRequest,
    pub(crate) request_id: RequestId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    pub(crate) unit_count: u32,
}

/// Stored state that a precheck reads without locks, so it may refuse a request but never grant one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrecheckState {
    pub(crate) latest_attempt: Option<LatestAttempt>,
    pub(crate) open_claim_id: Option<ClaimId>,
    /// `None` before the customer's first claim of the event.
    pub(crate) allowance: Option<Allowance>,
    /// Time by the database's clock.
    pub(crate) now: Timestamp,
}

/// Outcome of a precheck that did not refuse the request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PrecheckOutcome {
    /// The hold may be reserved.
    Reserve(HoldAttempt),
    /// The request has already created this claim.
    Created(ClaimId),
}

/// Refusal to create a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request id was used with another body.
    RequestIdReused(RequestId),
    /// The customer has an open claim for the event.
    OpenClaim(ClaimId),
    /// The turn ended before the claim was created.
    TurnExpired {
        expire_time: Timestamp,
    },
    /// The prices have different currencies or their sum overflows.
    InvalidPrice,
    /// The customer abandoned too many claims and may retry after `wait`, at `retry_time`.
    Cooldown {
        retry_time: Timestamp,
        wait: Duration,
    },
    LimitExceeded(LimitExceeded),
}

impl PrecheckItem {
    /// Decides whether Inventory may be called for the request. The transaction that creates the claim repeats the checks of
    /// open claim, cooldown and limit under locks.
    pub(crate) fn decide(
        &self,
        stored: &PrecheckState,
        rule: CooldownRule,
    ) -> Result<PrecheckOutcome, Refusal> {
        if let Some(latest) = stored.latest_attempt {
            if latest.fingerprint != self.hold_request.fingerprint {
                return Err(Refusal::RequestIdReused(self.request_id));
            }
            if let Some(claim_id) = latest.claim_id {
                return Ok(PrecheckOutcome::Created(claim_id));
            }
        }
        if let Some(claim_id) = stored.open_claim_id {
            return Err(Refusal::OpenClaim(claim_id));
        }
        if let Some(allowance) = stored.allowance {
            allowance.check_claim(self.unit_count, stored.now, rule)?;
        }
        Ok(PrecheckOutcome::Reserve(HoldAttempt::next(stored.latest_attempt, self.hold_request)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_token_is_valid_for_its_customer_and_event_until_it_expires() {
        let (customer_id, event_id) = (CustomerId::generate(), EventId::generate());
        let expire_time = Timestamp::from_secs(60);
        let token = TurnToken { customer_id, event_id, fencing_number: 3, expire_time };
        let before = Timestamp::from_secs(59);
        let turn = Turn { customer_id, event_id, fencing_number: 3 };
        assert_eq!(token.check(customer_id, event_id, before), Ok(turn));
        assert_eq!(token.check(CustomerId::generate(), event_id, before), Err(TurnError::Foreign));
        assert_eq!(token.check(customer_id, EventId::generate(), before), Err(TurnError::Foreign));
        assert_eq!(token.check(customer_id, event_id, expire_time), Err(TurnError::Expired { expire_time }));
        let unnumbered = TurnToken { fencing_number: 0, ..token };
        assert_eq!(unnumbered.check(customer_id, event_id, before), Err(TurnError::Foreign));
    }

    const RULE: CooldownRule =
        CooldownRule { claims: 1, max_gap: Duration::from_secs(60), duration: Duration::from_secs(60) };

    fn item() -> PrecheckItem {
        PrecheckItem {
            hold_request: HoldRequest {
                hold_key: Uuid::now_v7(),
                fingerprint: Uuid::now_v7(),
                claim_id: None,
            },
            request_id: RequestId::generate(),
            event_id: EventId::generate(),
            customer_id: CustomerId::generate(),
            unit_count: 2,
        }
    }

    fn state(latest_attempt: Option<LatestAttempt>) -> PrecheckState {
        PrecheckState { latest_attempt, open_claim_id: None, allowance: None, now: Timestamp::from_secs(100) }
    }

    #[test]
    fn retry_joins_an_attempt_and_replaces_an_abandoned_one() {
        let item = item();
        let latest = |is_abandoned| LatestAttempt {
            number: 3,
            is_abandoned,
            fingerprint: item.hold_request.fingerprint,
            claim_id: None,
        };
        for (latest_attempt, expected) in [(None, 1), (Some(latest(false)), 3), (Some(latest(true)), 4)] {
            match item.decide(&state(latest_attempt), RULE) {
                Ok(PrecheckOutcome::Reserve(attempt)) => assert_eq!(attempt.number, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn precheck_returns_the_created_claim_and_refuses_another_body() {
        let (item, claim_id) = (item(), ClaimId::generate());
        let latest = |fingerprint| {
            Some(LatestAttempt { number: 1, is_abandoned: false, fingerprint, claim_id: Some(claim_id) })
        };
        let created = item.decide(&state(latest(item.hold_request.fingerprint)), RULE);
        assert!(matches!(created, Ok(PrecheckOutcome::Created(id)) if id == claim_id), "{created:?}");
        let reused = item.decide(&state(latest(Uuid::now_v7())), RULE);
        assert!(matches!(reused, Err(Refusal::RequestIdReused(id)) if id == item.request_id), "{reused:?}");
    }

    #[test]
    fn precheck_refuses_an_open_claim_a_cooldown_and_too_many_units() {
        let (item, open) = (item(), ClaimId::generate());
        let refusal = |state: PrecheckState| item.decide(&state, RULE).expect_err("the request is refused");
        let allowance = Allowance::of_new_customer(1);
        assert_eq!(
            refusal(PrecheckState { open_claim_id: Some(open), ..state(None) }),
            Refusal::OpenClaim(open)
        );
        assert_eq!(
            refusal(PrecheckState { allowance: Some(allowance), ..state(None) }),
            Refusal::LimitExceeded(LimitExceeded { units_max: 1, units_left: 1 })
        );
        let abandoned = allowance.abandoned.increment(Timestamp::from_secs(90), RULE);
        let refused =
            refusal(PrecheckState { allowance: Some(Allowance { abandoned, ..allowance }), ..state(None) });
        let retry_time = Timestamp::from_secs(150);
        assert_eq!(refused, Refusal::Cooldown { retry_time, wait: Duration::from_secs(50) });
    }
}
