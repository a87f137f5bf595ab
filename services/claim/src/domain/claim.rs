//! A claim: a customer's right to buy held units until its expiry; once confirmed, the order.

use std::{sync::Arc, time::Duration};

use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Money, MoneyError, QuotaId, SectorId, Timestamp};

use super::{Allowance, ClaimLifecycle, CooldownRule, Refusal, Selection, Stage, State, Wanted};

/// A claim with its items and history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    pub(crate) customer_id: CustomerId,
    /// The event as it was when the claim was created.
    pub(crate) event: Arc<EventSummary>,
    pub(crate) buyer: Buyer,
    /// One item per sector.
    pub(crate) items: Vec<Item>,
    pub(crate) total: Money,
    pub(crate) origin: Origin,
    /// The hold that the claim uses now; a settlement may replace it.
    pub(crate) hold_id: HoldId,
    pub(crate) lifecycle: ClaimLifecycle,
    pub(crate) expiry: ClaimExpiry,
    /// Every stage that the claim has reached, oldest first.
    pub(crate) history: Vec<Transition>,
}

/// Credential with which a claim was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A turn; the number tells the customer's turns of one event apart.
    Turn { fencing_number: u64 },
    /// An invitation to units of a quota.
    Invitation { quota_id: QuotaId },
}

/// Entry of a claim's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) stage: Stage,
    pub(crate) time: Timestamp,
}

/// Copy of an event's public data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSummary {
    pub(crate) id: EventId,
    pub(crate) name: String,
    pub(crate) venue_name: String,
    /// Empty: the organizer gave none.
    pub(crate) venue_address: String,
    /// IANA name of the venue's time zone.
    pub(crate) time_zone: String,
    pub(crate) start_time: Timestamp,
}

/// Recipient of the emails about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buyer {
    /// Address that the identity provider has verified.
    pub(crate) email: String,
    /// Language of emails. Empty: the identity names none.
    pub(crate) locale: String,
}

/// Units of one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) sector_id: SectorId,
    /// Name of the sector when the units were reserved.
    pub(crate) sector_name: String,
    /// In ascending order of their numbers.
    pub(crate) units: Vec<Unit>,
    pub(crate) unit_price: Money,
    /// Groups of adjacent seats; 0 in a general admission sector.
    pub(crate) group_count: u32,
}

/// A unit of a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Number of the unit in its sector, from 1.
    pub(crate) number: u32,
    /// `None` in a general admission sector.
    pub(crate) seat: Option<Seat>,
}

/// Labels of a seat as printed on the ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) row_label: String,
    pub(crate) seat_label: String,
}

/// Units that Inventory has reserved, with their prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) event: Arc<EventSummary>,
    pub(crate) items: Vec<Item>,
    /// Quota that the units came from. `None`: the public sale.
    pub(crate) quota_id: Option<QuotaId>,
    /// The event's limit of units per customer.
    pub(crate) units_max: u32,
}

impl Item {
    /// Returns the price of all units.
    pub(crate) fn amount(&self) -> Result<Money, MoneyError> {
        let count = i64::try_from(self.units.len()).map_err(|_too_many| MoneyError::Overflow)?;
        self.unit_price.checked_mul(count)
    }
}

/// Returns the price of all items; `None` if there is no item.
pub(crate) fn total(items: &[Item]) -> Result<Option<Money>, MoneyError> {
    let Some(first) = items.first() else { return Ok(None) };
    let amounts = items.iter().map(Item::amount).collect::<Result<Vec<_>, _>>()?;
    Money::sum(first.unit_price.currency(), amounts).map(Some)
}

fn count_units(items: &[Item]) -> u32 {
    let count: usize = items.iter().map(|item| item.units.len()).sum();
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Reservation {
    /// Counts the reserved units.
    pub(crate) fn unit_count(&self) -> u32 {
        count_units(&self.items)
    }
}

impl Claim {
    /// Counts the claimed units.
    pub(crate) fn unit_count(&self) -> u32 {
        count_units(&self.items)
    }

    /// Extends the claim for a payment that began at `now`. Returns `None` if the claim is paid, released or already extended.
    pub(crate) fn extend(
        &self,
        now: Timestamp,
        window: Duration,
        extension: Duration,
    ) -> Option<ClaimExpiry> {
        match self.lifecycle.state {
            State::Claimed { payment_id: None } => self.expiry.extend(now, window, extension),
            State::Claimed { payment_id: Some(_) }
            | State::Confirmed { .. }
            | State::Released { .. }
            | State::Rejected { .. } => None,
        }
    }

    /// Returns the selections to reserve, in this order, for a paid claim that has lost its hold: first the same seats, then the
    /// same number of units in each sector.
    pub(crate) fn substitutes(&self) -> Vec<Vec<Selection>> {
        let by_count = |item: &Item| Wanted::Count(u32::try_from(item.units.len()).unwrap_or(u32::MAX));
        let by_seat = |item: &Item| {
            let is_seated = item.units.iter().any(|unit| unit.seat.is_some());
            let numbers = || item.units.iter().map(|unit| unit.number).collect();
            if is_seated { Wanted::Units(numbers()) } else { by_count(item) }
        };
        let select = |wanted: &dyn Fn(&Item) -> Wanted| -> Vec<Selection> {
            let select = |item: &Item| Selection { sector_id: item.sector_id, wanted: wanted(item) };
            self.items.iter().map(select).collect()
        };
        let mut substitutes = vec![select(&by_seat), select(&by_count)];
        substitutes.dedup();
        substitutes
    }
}

/// A claim that is about to be created on a reserved hold.
#[derive(Clone, Debug)]
pub(crate) struct NewClaim {
    pub(crate) id: ClaimId,
    pub(crate) customer_id: CustomerId,
    pub(crate) buyer: Buyer,
    pub(crate) origin: Origin,
    /// `None` for a claim by invitation.
    pub(crate) turn_end: Option<Timestamp>,
    pub(crate) hold_id: HoldId,
    pub(crate) reservation: Reservation,
}

/// A customer's locked allowance and open claim in one event, while a batch creates claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchCustomer {
    /// Allowance with the claims that the batch has created so far.
    pub(crate) allowance: Allowance,
    pub(crate) open_claim_id: Option<ClaimId>,
    /// Allowance in the database.
    stored: Allowance,
}

impl BatchCustomer {
    /// Returns a customer without claims whose allowance `stored` was just inserted; it may count the first claim already.
    pub(crate) fn new_customer(stored: Allowance) -> Self {
        Self { allowance: Allowance::of_new_customer(stored.units_max), open_claim_id: None, stored }
    }

    /// Returns a customer whose allowance `stored` was just locked.
    pub(crate) fn known_customer(stored: Allowance, open_claim_id: Option<ClaimId>) -> Self {
        Self { allowance: stored, open_claim_id, stored }
    }

    /// Returns the allowance if it must be saved.
    pub(crate) fn changed_allowance(&self) -> Option<Allowance> {
        (self.allowance != self.stored).then_some(self.allowance)
    }
}

impl NewClaim {
    /// Creates the claim if the customer may have it, and counts it against the customer's allowance.
    pub(crate) fn create(
        &self,
        customer: &mut BatchCustomer,
        now: Timestamp,
        window: Duration,
        rule: CooldownRule,
    ) -> Result<Claim, Refusal> {
        if let Some(claim_id) = customer.open_claim_id {
            return Err(Refusal::OpenClaim(claim_id));
        }
        let expiry = ClaimExpiry::begin(now, self.turn_end, window)
            .ok_or(Refusal::TurnExpired { expire_time: self.turn_end.unwrap_or(now) })?;
        let items = self.reservation.items.clone();
        let total = total(&items).ok().flatten().ok_or(Refusal::InvalidPrice)?;
        let unit_count = self.reservation.unit_count();
        customer.allowance.check_claim(unit_count, now, rule)?;
        customer.allowance = customer.allowance.with(unit_count);
        customer.open_claim_id = Some(self.id);
        Ok(Claim {
            id: self.id,
            customer_id: self.customer_id,
            event: self.reservation.event.clone(),
            buyer: self.buyer.clone(),
            items,
            total,
            origin: self.origin,
            hold_id: self.hold_id,
            lifecycle: ClaimLifecycle::NEW,
            expiry,
            history: vec![Transition { stage: Stage::Claimed, time: expiry.create_time }],
        })
    }
}

/// Times between which a claim can be paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimExpiry {
    pub(crate) create_time: Timestamp,
    /// Time at which an unpaid claim is released.
    pub(crate) expire_time: Timestamp,
    /// Time at which a payment extended the claim; `None`: no payment has.
    pub(crate) extend_time: Option<Timestamp>,
}

impl ClaimExpiry {
    /// Returns the expiry of a claim created at `now`: the end of its turn or of `window`, whichever is earlier. Returns `None`
    /// if the turn is over. A claim by invitation has no turn.
    pub(crate) fn begin(now: Timestamp, turn_end: Option<Timestamp>, window: Duration) -> Option<Self> {
        let ends = [now.checked_add(window), turn_end];
        let expire_time = ends.into_iter().flatten().min()?;
        (expire_time > now).then_some(Self { create_time: now, expire_time, extend_time: None })
    }

    /// Moves the expiry to `extension` after `now`, but at most `window` and `extension` after the creation, and never to an
    /// earlier time. Returns `None` if it was extended before.
    pub(crate) fn extend(self, now: Timestamp, window: Duration, extension: Duration) -> Option<Self> {
        if self.extend_time.is_some() {
            return None;
        }
        let latest = self.create_time.checked_add(window.saturating_add(extension))?;
        let end = now.checked_add(extension)?.min(latest).max(self.expire_time);
        Some(Self { expire_time: end, extend_time: Some(now), ..self })
    }
}

#[cfg(test)]
mod tests;
