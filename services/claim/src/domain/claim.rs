//! A claim: whose it is, what it holds, what it costs, and where it is in its life.

use std::{sync::Arc, time::Duration};

use onsale_types::{ClaimId, CustomerId, EventId, HoldId, Money, MoneyError, QuotaId, SectorId, Timestamp};

use super::{Life, Lifetime, Selection, Stage, State, Wanted};

/// A customer's right to buy held units; once confirmed, the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// Whose it is.
    pub customer: CustomerId,
    /// The event, as it was when the claim was made.
    pub event: Arc<EventSummary>,
    /// Who gets the mails.
    pub buyer: Buyer,
    /// The units, one item per sector.
    pub items: Vec<Item>,
    /// What to pay.
    pub total: Money,
    /// What gave the right to it.
    pub origin: Origin,
    /// The hold it stands on.
    pub hold: HoldId,
    /// Where it is in its life.
    pub life: Life,
    /// How long it lasts.
    pub lifetime: Lifetime,
    /// Every stage it has been at, oldest first.
    pub history: Vec<Transition>,
}

/// What gave a customer the right to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A turn in the queue.
    Turn {
        /// Which of the customer's turns.
        fencing_number: u64,
    },
    /// An invitation.
    Invitation {
        /// To units of this quota.
        quota: QuotaId,
    },
}

/// A step in the life of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Where it went.
    pub stage: Stage,
    /// When.
    pub time: Timestamp,
}

/// What a claim says about its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSummary {
    /// The event.
    pub id: EventId,
    /// Its name.
    pub name: String,
    /// The venue's name.
    pub venue_name: String,
    /// The venue's address; empty when not given.
    pub venue_address: String,
    /// The venue's time zone.
    pub time_zone: String,
    /// When the event starts.
    pub start_time: Timestamp,
}

/// Who buys, as the identity says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buyer {
    /// Verified address.
    pub email: String,
    /// Language of mails; empty when the identity names none.
    pub locale: String,
}

/// Units of one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The sector.
    pub sector: SectorId,
    /// Its name when the units were held.
    pub sector_name: String,
    /// The units, in rising order.
    pub units: Vec<Unit>,
    /// Price of one.
    pub unit_price: Money,
    /// Groups of adjacent seats; 0 in a general admission sector.
    pub group_count: u32,
}

/// One unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number in the sector.
    pub number: u32,
    /// The seat it is; none in a general admission sector.
    pub seat: Option<Seat>,
}

/// A seat as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Label of the row.
    pub row_label: String,
    /// Label of the seat in its row.
    pub seat_label: String,
}

/// What Inventory set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The event.
    pub event: Arc<EventSummary>,
    /// The units with their prices.
    pub items: Vec<Item>,
    /// The quota they came from. None: the public sale.
    pub quota: Option<QuotaId>,
    /// Most units a customer may have of the event.
    pub units_max: u32,
}

impl Item {
    /// Price of all units together.
    pub fn amount(&self) -> Result<Money, MoneyError> {
        let count = i64::try_from(self.units.len()).map_err(|_too_many| MoneyError::Overflow)?;
        self.unit_price.checked_mul(count)
    }
}

/// Price of all items together; none without an item.
pub fn total(items: &[Item]) -> Result<Option<Money>, MoneyError> {
    let Some(first) = items.first() else { return Ok(None) };
    let amounts = items.iter().map(Item::amount).collect::<Result<Vec<_>, _>>()?;
    Money::sum(first.unit_price.currency(), amounts).map(Some)
}

impl Reservation {
    /// How many units it is about.
    #[must_use]
    pub fn unit_count(&self) -> u32 {
        units_in(&self.items)
    }
}

fn units_in(items: &[Item]) -> u32 {
    let count: usize = items.iter().map(|item| item.units.len()).sum();
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Claim {
    /// How many units it is about.
    #[must_use]
    pub fn unit_count(&self) -> u32 {
        units_in(&self.items)
    }

    /// How long it lasts with a payment in progress at `now`. None: it is paid or given up already, or was extended before.
    #[must_use]
    pub fn extend(&self, now: Timestamp, window: Duration, extension: Duration) -> Option<Lifetime> {
        match self.life.state {
            State::Claimed { payment: None } => self.lifetime.extend(now, window, extension),
            State::Claimed { payment: Some(_) }
            | State::Confirmed { .. }
            | State::Released { .. }
            | State::Rejected { .. } => None,
        }
    }

    /// What to ask for when it is paid and its units are gone, best first: the very seats, then as many of any.
    #[must_use]
    pub fn substitutes(&self) -> Vec<Vec<Selection>> {
        let by_count = |item: &Item| Wanted::Count(u32::try_from(item.units.len()).unwrap_or(u32::MAX));
        let by_seat = |item: &Item| {
            let is_seated = item.units.iter().any(|unit| unit.seat.is_some());
            let numbers = || item.units.iter().map(|unit| unit.number).collect();
            if is_seated { Wanted::Units(numbers()) } else { by_count(item) }
        };
        let select = |wanted: &dyn Fn(&Item) -> Wanted| -> Vec<Selection> {
            self.items.iter().map(|item| Selection { sector: item.sector, wanted: wanted(item) }).collect()
        };
        let mut all = vec![select(&by_seat), select(&by_count)];
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use onsale_types::{Currency, PaymentId};

    use super::*;
    use crate::domain::ReleaseReason;

    const EUR: &str = "EUR";

    fn item(units: u32, is_seated: bool) -> Item {
        let seat = |number: u32| Seat { row_label: "A".to_owned(), seat_label: number.to_string() };
        Item {
            sector: SectorId::generate(),
            sector_name: "North".to_owned(),
            units: (1..=units).map(|number| Unit { number, seat: is_seated.then(|| seat(number)) }).collect(),
            unit_price: Money::new(1_250, Currency::parse(EUR).unwrap()),
            group_count: u32::from(is_seated),
        }
    }

    fn claim(items: Vec<Item>) -> Claim {
        Claim {
            id: ClaimId::generate(),
            customer: CustomerId::generate(),
            event: Arc::new(EventSummary {
                id: EventId::generate(),
                name: String::new(),
                venue_name: String::new(),
                venue_address: String::new(),
                time_zone: String::new(),
                start_time: Timestamp::EPOCH,
            }),
            buyer: Buyer { email: String::new(), locale: String::new() },
            total: total(&items).unwrap().unwrap(),
            items,
            origin: Origin::Turn { fencing_number: 1 },
            hold: HoldId::generate(),
            life: Life::BEGIN,
            lifetime: Lifetime {
                create_time: Timestamp::EPOCH,
                expire_time: Timestamp::from_secs(10),
                extend_time: None,
            },
            history: Vec::new(),
        }
    }

    #[test]
    fn a_total_is_the_sum_of_units_times_price() {
        let items = vec![item(2, false), item(3, true)];
        assert_eq!(total(&items).unwrap().unwrap().amount_minor(), 5 * 1_250);
        assert_eq!(total(&[]), Ok(None));
    }

    #[test]
    fn an_amount_that_does_not_fit_is_refused() {
        let mut dear = item(2, false);
        dear.unit_price = Money::new(i64::MAX, Currency::parse(EUR).unwrap());
        assert_eq!(total(&[dear]), Err(MoneyError::Overflow));
    }

    #[test]
    fn only_an_unpaid_open_claim_is_extended() {
        let (now, span) = (Timestamp::from_secs(5), Duration::from_secs(10));
        let mut claim = claim(vec![item(1, false)]);
        assert!(claim.extend(now, span, span).is_some());
        let paid = Life::BEGIN.pay(PaymentId::generate(), true).unwrap();
        for life in [paid, paid.complete().unwrap(), Life::BEGIN.release(ReleaseReason::Expired).unwrap()] {
            claim.life = life;
            assert_eq!(claim.extend(now, span, span), None, "{life:?}");
        }
    }

    #[test]
    fn seats_are_asked_for_again_first_and_then_any_as_many() {
        let seated = claim(vec![item(2, true), item(1, false)]);
        let wanted: Vec<Vec<_>> = seated
            .substitutes()
            .into_iter()
            .map(|selections| selections.into_iter().map(|it| it.wanted).collect())
            .collect();
        assert_eq!(
            wanted,
            [vec![Wanted::Units(vec![1, 2]), Wanted::Count(1)], vec![Wanted::Count(2), Wanted::Count(1)]]
        );
        assert_eq!(claim(vec![item(2, false)]).substitutes().len(), 1, "without seats there is one way");
    }
}
