//! Rules of claims. Pure: no I/O, no clock, no wire format.

mod allowance;
mod claim;
mod claim_event;
mod commands;
mod create_claim;
mod lifecycle;

pub(crate) use allowance::{AbandonedStreak, Allowance, CooldownRule, LimitExceeded};
pub(crate) use claim::{
    BatchCustomer, Buyer, Claim, ClaimExpiry, EventSummary, Item, NewClaim, Origin, Reservation, Seat,
    Transition, Unit, total,
};
pub(crate) use claim_event::ClaimEvent;
pub(crate) use commands::{
    ClaimFilter, ClaimState, ConfirmClaim, EndedTurn, EntryEnd, ExtendClaim, ReserveUnits,
};
pub(crate) use create_claim::{
    CreateClaim, Credential, HoldAttempt, HoldRequest, LatestAttempt, PrecheckItem, PrecheckOutcome,
    PrecheckState, Refusal, Selection, Turn, TurnError, TurnToken, Wanted,
};
pub(crate) use lifecycle::{
    AlreadyPaid, ClaimLifecycle, HoldState, PaidByAnother, ReleaseReason, SettlementStep, Stage, State,
};
