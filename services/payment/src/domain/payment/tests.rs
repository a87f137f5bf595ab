//! The life of a payment, under everything that can be said about it in any order.

use onsale_types::Currency;
use proptest::prelude::*;

use super::*;

fn new() -> Payment {
    Payment {
        id: PaymentId::generate(),
        claim_id: ClaimId::generate(),
        event_id: EventId::generate(),
        customer_id: CustomerId::generate(),
        amount: Money::new(4_000, Currency::parse("EUR").unwrap()),
        provider: Provider::Sandbox,
        state: State::Initializing,
        return_url: String::new(),
        cancel_url: String::new(),
        create_time: Timestamp::from_secs(1),
        expire_time: Timestamp::from_secs(100),
        reference: None,
        checkout_url: None,
        charge: None,
        failure_reason: None,
        confirm_time: None,
        settle_time: None,
        refund: None,
    }
}

/// Anything that can happen to a payment.
#[derive(Clone, Debug)]
enum Happening {
    Told(Fact),
    Judged(Verdict),
    RefundAsked(RefundReason),
    RefundAccepted,
    RefundWithdrawn,
}

fn happen(payment: &Payment, happening: &Happening, now: Timestamp) -> Option<Payment> {
    match happening {
        Happening::Told(fact) => payment.after(fact, now),
        Happening::Judged(verdict) => payment.settled(*verdict, Uuid::nil(), now),
        Happening::RefundAsked(reason) => payment.with_refund(*reason, Uuid::nil(), now),
        Happening::RefundAccepted => payment.refunded(now),
        Happening::RefundWithdrawn => payment.without_refund(),
    }
}

fn paid() -> Fact {
    Fact::Paid { reference: "cs_1".to_owned(), charge: "pi_1".to_owned(), amount: new().amount }
}

fn facts() -> impl Strategy<Value = Fact> {
    prop_oneof![
        Just(Fact::Opened { reference: "cs_1".to_owned(), checkout_url: "http://pay".to_owned() }),
        Just(paid()),
        prop::sample::select(FailureReason::ALL).prop_map(|reason| Fact::Ended { reason }),
    ]
}

fn happenings() -> impl Strategy<Value = Happening> {
    let reasons = || prop::sample::select(RefundReason::ALL);
    prop_oneof![
        4 => facts().prop_map(Happening::Told),
        2 => prop_oneof![Just(Verdict::Served), reasons().prop_map(Verdict::Refund)]
            .prop_map(Happening::Judged),
        1 => reasons().prop_map(Happening::RefundAsked),
        2 => Just(Happening::RefundAccepted),
        1 => Just(Happening::RefundWithdrawn),
    ]
}

fn is_money(payment: &Payment) -> bool {
    matches!(payment.state, State::Confirmed | State::Refunded)
}

proptest! {
    #[test]
    fn money_once_taken_is_never_forgotten(story in prop::collection::vec(happenings(), 0..20)) {
        let mut payment = new();
        for (index, happening) in story.iter().enumerate() {
            let now = Timestamp::from_secs(i64::try_from(index).unwrap());
            let before = payment.clone();
            payment = happen(&payment, happening, now).unwrap_or(payment);
            let was_told_paid = matches!(happening, Happening::Told(Fact::Paid { .. }));
            prop_assert!(!(is_money(&before) || was_told_paid) || is_money(&payment), "{before:?} {happening:?}");
            prop_assert_eq!(is_money(&payment), payment.confirm_time.is_some());
            prop_assert_eq!(payment.state == State::Failed, payment.failure_reason.is_some());
            prop_assert!(before.state != State::Refunded || payment == before, "final");
        }
    }

    #[test]
    fn the_same_happening_twice_changes_nothing_more(story in prop::collection::vec(happenings(), 1..12)) {
        let mut payment = new();
        for happening in &story {
            payment = happen(&payment, happening, Timestamp::from_secs(5)).unwrap_or(payment);
            prop_assert_eq!(happen(&payment, happening, Timestamp::from_secs(6)), None);
        }
    }

    #[test]
    fn the_order_of_a_providers_words_does_not_matter_once_money_was_taken(
        mut story in prop::collection::vec(facts(), 0..8).prop_map(|mut story| {
            story.push(paid());
            story
        }),
        seed: u64,
    ) {
        let length = u64::try_from(story.len()).unwrap();
        story.rotate_left(usize::try_from(seed % length).unwrap());
        let end = story.iter().fold(new(), |payment, fact| {
            payment.after(fact, Timestamp::from_secs(9)).unwrap_or(payment)
        });
        prop_assert_eq!(end.state, State::Confirmed);
        prop_assert_eq!(end.next_step(), Some(Step::Settle));
    }

    #[test]
    fn as_long_as_something_is_owed_there_is_a_next_step(story in prop::collection::vec(happenings(), 0..20)) {
        let payment = story.iter().fold(new(), |payment, happening| {
            happen(&payment, happening, Timestamp::from_secs(9)).unwrap_or(payment)
        });
        let is_done = match payment.state {
            State::Failed | State::Refunded => true,
            State::Confirmed => payment.settle_time.is_some() && payment.refund.is_none(),
            State::Initializing | State::Pending => false,
        };
        prop_assert_eq!(payment.next_step().is_none(), is_done, "{:?}", payment);
    }
}

#[test]
fn a_claim_that_cannot_be_served_sends_the_money_back() {
    let now = Timestamp::from_secs(9);
    let paid = new().after(&paid(), now).unwrap();
    let rejected = paid.settled(Verdict::Refund(RefundReason::ClaimRejected), Uuid::nil(), now).unwrap();
    assert_eq!(rejected.next_step(), Some(Step::Refund));
    assert_eq!(rejected.settled(Verdict::Served, Uuid::nil(), now), None, "never both");
    assert_eq!(rejected.without_refund(), None, "there are no tickets that it could keep instead");
    assert_eq!(rejected.refunded(now).unwrap().state, State::Refunded);
}

#[test]
fn every_name_is_read_back() {
    for state in State::ALL {
        assert_eq!(State::from_name(state.name()), Some(*state));
    }
    assert_eq!(State::from_name("PAID"), None);
}
