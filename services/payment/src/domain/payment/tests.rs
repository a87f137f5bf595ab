//! Properties of a payment's life cycle under any sequence of updates, verdicts and refunds.

use onsale_types::{Currency, Named as _};
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
        state: PaymentState::Initializing,
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

/// An input that can change a payment.
#[derive(Clone, Debug)]
enum Input {
    Updated(ProviderUpdate),
    Judged(Verdict),
    RefundRequested(RefundReason),
    RefundAccepted,
    RefundWithdrawn,
}

fn apply(payment: &Payment, input: &Input, now: Timestamp) -> Option<Payment> {
    match input {
        Input::Updated(update) => payment.after_update(update, now),
        Input::Judged(verdict) => payment.settled(*verdict, Uuid::nil(), now),
        Input::RefundRequested(reason) => payment.with_refund(*reason, Uuid::nil(), now),
        Input::RefundAccepted => payment.refunded(now),
        Input::RefundWithdrawn => payment.without_refund(),
    }
}

fn paid() -> ProviderUpdate {
    ProviderUpdate::Paid { reference: "cs_1".to_owned(), charge: "pi_1".to_owned(), amount: new().amount }
}

fn updates() -> impl Strategy<Value = ProviderUpdate> {
    prop_oneof![
        Just(ProviderUpdate::Opened { reference: "cs_1".to_owned(), checkout_url: "http://pay".to_owned() }),
        Just(paid()),
        prop::sample::select(FailureReason::ALL).prop_map(|reason| ProviderUpdate::Ended { reason }),
    ]
}

fn inputs() -> impl Strategy<Value = Input> {
    let reasons = || prop::sample::select(RefundReason::ALL);
    prop_oneof![
        4 => updates().prop_map(Input::Updated),
        2 => prop_oneof![Just(Verdict::Served), reasons().prop_map(Verdict::Refund)]
            .prop_map(Input::Judged),
        1 => reasons().prop_map(Input::RefundRequested),
        2 => Just(Input::RefundAccepted),
        1 => Just(Input::RefundWithdrawn),
    ]
}

fn has_money(payment: &Payment) -> bool {
    matches!(payment.state, PaymentState::Confirmed | PaymentState::Refunded)
}

proptest! {
    #[test]
    fn taken_money_is_never_lost(inputs in prop::collection::vec(inputs(), 0..20)) {
        let mut payment = new();
        for (index, input) in inputs.iter().enumerate() {
            let now = Timestamp::from_secs(i64::try_from(index).unwrap());
            let before = payment.clone();
            payment = apply(&payment, input, now).unwrap_or(payment);
            let was_reported_paid = matches!(input, Input::Updated(ProviderUpdate::Paid { .. }));
            prop_assert!(!(has_money(&before) || was_reported_paid) || has_money(&payment), "{before:?} {input:?}");
            prop_assert_eq!(has_money(&payment), payment.confirm_time.is_some());
            prop_assert_eq!(payment.state == PaymentState::Failed, payment.failure_reason.is_some());
            prop_assert!(before.state != PaymentState::Refunded || payment == before, "final");
        }
    }

    #[test]
    fn repeated_input_changes_nothing(inputs in prop::collection::vec(inputs(), 1..12)) {
        let mut payment = new();
        for input in &inputs {
            payment = apply(&payment, input, Timestamp::from_secs(5)).unwrap_or(payment);
            prop_assert_eq!(apply(&payment, input, Timestamp::from_secs(6)), None);
        }
    }

    #[test]
    fn paid_update_confirms_in_any_order_of_updates(
        mut inputs in prop::collection::vec(updates(), 0..8).prop_map(|mut inputs| {
            inputs.push(paid());
            inputs
        }),
        seed: u64,
    ) {
        let length = u64::try_from(inputs.len()).unwrap();
        inputs.rotate_left(usize::try_from(seed % length).unwrap());
        let end = inputs.iter().fold(new(), |payment, update| {
            payment.after_update(update, Timestamp::from_secs(9)).unwrap_or(payment)
        });
        prop_assert_eq!(end.state, PaymentState::Confirmed);
        prop_assert_eq!(end.next_step(), Some(PaymentStep::Settle));
    }

    #[test]
    fn unfinished_payment_has_a_next_step(inputs in prop::collection::vec(inputs(), 0..20)) {
        let payment = inputs.iter().fold(new(), |payment, input| {
            apply(&payment, input, Timestamp::from_secs(9)).unwrap_or(payment)
        });
        let is_done = match payment.state {
            PaymentState::Failed | PaymentState::Refunded => true,
            PaymentState::Confirmed => payment.settle_time.is_some() && payment.refund.is_none(),
            PaymentState::Initializing | PaymentState::Pending => false,
        };
        prop_assert_eq!(payment.next_step().is_none(), is_done, "{:?}", payment);
    }
}

#[test]
fn rejected_claim_is_refunded_and_never_served() {
    let now = Timestamp::from_secs(9);
    let paid = new().after_update(&paid(), now).unwrap();
    let rejected = paid.settled(Verdict::Refund(RefundReason::ClaimRejected), Uuid::nil(), now).unwrap();
    assert_eq!(rejected.next_step(), Some(PaymentStep::Refund));
    assert_eq!(rejected.settled(Verdict::Served, Uuid::nil(), now), None, "never both");
    assert_eq!(rejected.without_refund(), None, "without tickets the refund cannot be withdrawn");
    assert_eq!(rejected.refunded(now).unwrap().state, PaymentState::Refunded);
}

#[test]
fn every_state_name_is_parsed_back() {
    for state in PaymentState::ALL {
        assert_eq!(PaymentState::from_name(state.name()), Some(*state));
    }
    assert_eq!(PaymentState::from_name("PAID"), None);
}
