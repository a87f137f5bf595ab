//! Totals, substitutes and the expiry of a claim.

use onsale_types::{Currency, PaymentId};
use proptest::prelude::*;

use super::*;
use crate::domain::ReleaseReason;

const EUR: &str = "EUR";
const WINDOW: Duration = Duration::from_secs(600);
const EXTENSION: Duration = Duration::from_secs(300);

fn at(seconds: u64) -> Timestamp {
    Timestamp::EPOCH.checked_add(Duration::from_secs(seconds)).unwrap()
}

fn item(units: u32, is_seated: bool) -> Item {
    let seat = |number: u32| Seat { row_label: "A".to_owned(), seat_label: number.to_string() };
    Item {
        sector_id: SectorId::generate(),
        sector_name: "North".to_owned(),
        units: (1..=units).map(|number| Unit { number, seat: is_seated.then(|| seat(number)) }).collect(),
        unit_price: Money::new(1_250, Currency::parse(EUR).unwrap()),
        group_count: u32::from(is_seated),
    }
}

fn claim(items: Vec<Item>) -> Claim {
    Claim {
        id: ClaimId::generate(),
        customer_id: CustomerId::generate(),
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
        hold_id: HoldId::generate(),
        lifecycle: ClaimLifecycle::NEW,
        expiry: ClaimExpiry {
            create_time: Timestamp::EPOCH,
            expire_time: Timestamp::from_secs(10),
            extend_time: None,
        },
        history: Vec::new(),
    }
}

#[test]
fn total_is_the_sum_of_units_times_price() {
    let items = vec![item(2, false), item(3, true)];
    assert_eq!(total(&items).unwrap().unwrap().amount_minor(), 5 * 1_250);
    assert_eq!(total(&[]), Ok(None));
}

#[test]
fn overflowing_amount_is_refused() {
    let mut expensive = item(2, false);
    expensive.unit_price = Money::new(i64::MAX, Currency::parse(EUR).unwrap());
    assert_eq!(total(&[expensive]), Err(MoneyError::Overflow));
}

#[test]
fn only_an_open_claim_without_payment_is_extended() {
    let (now, span) = (Timestamp::from_secs(5), Duration::from_secs(10));
    let mut claim = claim(vec![item(1, false)]);
    assert!(claim.extend(now, span, span).is_some());
    let paid = ClaimLifecycle::NEW.record_payment(PaymentId::generate(), true).unwrap();
    let released = ClaimLifecycle::NEW.release(ReleaseReason::Expired).unwrap();
    for lifecycle in [paid, paid.confirm().unwrap(), released] {
        claim.lifecycle = lifecycle;
        assert_eq!(claim.extend(now, span, span), None, "{lifecycle:?}");
    }
}

#[test]
fn substitutes_are_the_same_seats_and_then_the_same_number() {
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

#[test]
fn claim_expires_with_its_turn_or_window_and_needs_time_left() {
    let (now, window) = (at(100), Duration::from_secs(10));
    let end = |turn_end| ClaimExpiry::begin(now, turn_end, window).map(|it| it.expire_time);
    assert_eq!(end(Some(at(105))), Some(at(105)));
    assert_eq!(end(Some(at(200))), Some(at(110)));
    assert_eq!(end(None), Some(at(110)), "without a turn the window counts");
    assert_eq!(end(Some(now)), None);
    assert_eq!(end(Some(at(99))), None);
}

proptest! {
    #[test]
    fn extension_happens_once_within_its_bound_and_never_shortens(
        created in 0_u64..1_000,
        turn in 1_u64..2_000,
        paid_after in 0_u64..2_000,
        again_after in 0_u64..2_000,
    ) {
        let begun = ClaimExpiry::begin(at(created), Some(at(created + turn)), WINDOW).unwrap();
        let now = at(created + paid_after);
        let extended = begun.extend(now, WINDOW, EXTENSION).unwrap();
        prop_assert!(extended.expire_time >= begun.expire_time);
        prop_assert!(extended.expire_time <= at(created + 900));
        // A payment that begins in time has the whole extension.
        if now <= begun.expire_time {
            prop_assert!(extended.expire_time >= now.checked_add(EXTENSION).unwrap());
        }
        prop_assert_eq!(extended.create_time, begun.create_time);
        let again = at(created + paid_after + again_after);
        prop_assert_eq!(extended.extend(again, WINDOW, EXTENSION), None);
    }
}
