//! Refunds of claims that cannot be confirmed, and `RefundPayment`.

use onsale_proto::{
    auth::v1::Role,
    events::v1::PaymentRefunded,
    payment::v1::{Payment, PaymentState, RefundPaymentRequest, RefundReason, RefundState},
};
use onsale_sandbox::payments::Behaviour;
use onsale_types::{ClaimId, RequestId};
use tonic::{Code, Status};

use crate::{
    support::neighbors::{ConfirmBehavior, EMAIL},
    support::{Person, World, metadata, reason, with_token},
};

async fn refund(world: &World, person: &Person, request: &RefundPaymentRequest) -> Result<Payment, Status> {
    let answer = world.payments().await.refund_payment(with_token(&person.token, request.clone())).await?;
    Ok(answer.into_inner().payment.unwrap())
}

fn request(payment: &Payment, reason: RefundReason) -> RefundPaymentRequest {
    RefundPaymentRequest {
        request_id: RequestId::generate().to_string(),
        payment_id: payment.payment_id.clone(),
        reason: reason.into(),
    }
}

/// Creates a payment that confirmed its claim.
async fn settled(world: &World) -> (Person, ClaimId, Payment) {
    let (ana, claim_id, payment) = world.pending().await;
    world.press_button(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    world.until_all_steps_are_done().await;
    (ana, claim_id, payment)
}

#[tokio::test(flavor = "multi_thread")]
async fn money_of_a_rejected_claim_is_refunded_and_published() {
    let world = World::new().await;
    for (index, (confirm_behavior, expected)) in [
        (ConfirmBehavior::Rejects, RefundReason::ClaimRejected),
        (ConfirmBehavior::AmountDiffers, RefundReason::ClaimRejected),
        (ConfirmBehavior::PaidByAnother, RefundReason::Duplicate),
    ]
    .into_iter()
    .enumerate()
    {
        world.neighbors.state().confirm_behavior = confirm_behavior;
        let (ana, claim_id, payment) = world.pending().await;
        world.press_button(&payment, "pay").await;
        let refunded = world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
        let refund = refunded.refund.unwrap();
        assert_eq!((refund.reason(), refund.state()), (expected, RefundState::Completed));
        assert_eq!(refund.amount, payment.amount);
        let events: Vec<PaymentRefunded> = world.events(claim_id).await;
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].buyer_email.as_str(), events[0].buyer_locale.as_str()), (EMAIL, "hr"));
        assert_eq!(events[0].event.as_ref().unwrap().name, "Derby");
        assert_eq!(events[0].reason(), expected);
        assert_eq!(world.provider.refund_count(), index + 1);
    }
    assert!(world.neighbors.state().voided_claims.is_empty(), "there were no tickets");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_is_retried_until_accepted_and_made_once() {
    let world = World::new().await;
    world.neighbors.state().confirm_behavior = ConfirmBehavior::Rejects;
    let (ana, claim_id, payment) = world.pending().await;
    world.provider.set_behaviour(Behaviour { fail_calls: 2, lose_answers: 2, ..Behaviour::default() });
    world.press_button(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert_eq!(world.provider.refund_count(), 1);
    assert_eq!(world.events::<PaymentRefunded>(claim_id).await.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn organizers_refund_voids_the_tickets_first() {
    let world = World::new().await;
    let (ana, claim_id, payment) = settled(&world).await;
    let olga = world.person("olga", &[Role::Organizer]);
    let goodwill = request(&payment, RefundReason::Goodwill);
    let status = refund(&world, &olga, &goodwill).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    world.neighbors.state().organizers.insert(payment.event_id.clone(), olga.organizer_id);
    assert!(world.get(&olga, &payment.payment_id).await.is_ok(), "an organizer sees payments of her event");

    world.neighbors.state().is_checked_in = true;
    let status = refund(&world, &olga, &goodwill).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "TICKET_CHECKED_IN"));
    let kept = world.get(&ana, &payment.payment_id).await.unwrap();
    assert_eq!((kept.state(), kept.refund), (PaymentState::Confirmed, None), "the refund is withdrawn");
    world.neighbors.state().is_checked_in = false;
    let refunded = refund(&world, &olga, &goodwill).await.unwrap();
    assert!(refunded.refund.is_some());
    assert!(world.neighbors.state().voided_claims.contains(&claim_id.to_string()));
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    let repeated = refund(&world, &olga, &goodwill).await.unwrap();
    assert_eq!(repeated.state(), PaymentState::Refunded);
    let another = refund(&world, &olga, &request(&payment, RefundReason::EventCanceled)).await.unwrap();
    assert_eq!(another.refund.unwrap().reason(), RefundReason::Goodwill, "the first refund stays");
    assert_eq!(world.provider.refund_count(), 1);
    let changed = RefundPaymentRequest { reason: RefundReason::EventCanceled.into(), ..goodwill };
    let status = refund(&world, &olga, &changed).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_ID_REUSED");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_refund_is_finished_after_the_tickets_are_void() {
    let world = World::new().await;
    let (ana, claim_id, payment) = settled(&world).await;
    let service = world.person("support", &[Role::Service]);
    let goodwill = request(&payment, RefundReason::Goodwill);
    world.neighbors.state().is_ticketing_unavailable = true;
    let status = refund(&world, &service, &goodwill).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let stored = world.get(&ana, &payment.payment_id).await.unwrap();
    assert_eq!(
        stored.refund.unwrap().state(),
        RefundState::Pending,
        "the refund is stored before the tickets are voided"
    );
    assert_eq!(world.provider.refund_count(), 0, "no money is refunded while the tickets are valid");
    let world =
        world.restart(async |_provider, neighbors| neighbors.state().is_ticketing_unavailable = false).await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert!(world.neighbors.state().voided_claims.contains(&claim_id.to_string()));
    assert_eq!(world.provider.refund_count(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_of_a_duplicate_keeps_the_other_payments_tickets() {
    let world = World::new().await;
    world.neighbors.state().confirm_behavior = ConfirmBehavior::Unreachable;
    let (ana, _, payment) = world.pending().await;
    world.press_button(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    let service = world.person("support", &[Role::Service]);
    let goodwill = request(&payment, RefundReason::Goodwill);
    // Claim has not yet reported which payment paid for the tickets.
    let status = refund(&world, &service, &goodwill).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    world.neighbors.state().confirm_behavior = ConfirmBehavior::PaidByAnother;
    let refunded = refund(&world, &service, &goodwill).await.unwrap();
    assert_eq!(refunded.refund.unwrap().reason(), RefundReason::Duplicate);
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert!(world.neighbors.state().voided_claims.is_empty(), "the tickets belong to the other payment");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refund_needs_taken_money_and_a_reason_and_role_that_match() {
    let world = World::new().await;
    let (_, _, payment) = world.pending().await;
    let service = world.person("claim", &[Role::Service]);
    let status = refund(&world, &service, &request(&payment, RefundReason::ClaimRejected)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::FailedPrecondition, "PAYMENT_NOT_REFUNDABLE")
    );
    assert_eq!(metadata(&status, "state"), "PENDING");
    assert!(world.neighbors.state().voided_claims.is_empty());

    let olga = world.person("olga", &[Role::Organizer]);
    world.neighbors.state().organizers.insert(payment.event_id.clone(), olga.organizer_id);
    let status = refund(&world, &olga, &request(&payment, RefundReason::Duplicate)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "FIELDS_INVALID"));
    let customer = world.customer("ana");
    let status = refund(&world, &customer, &request(&payment, RefundReason::Goodwill)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "ROLE_MISSING"));
    let both = world.person("ana", &[Role::Customer, Role::Organizer]);
    let status = refund(&world, &both, &request(&payment, RefundReason::Goodwill)).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "customers cannot refund their own payments");
    world.stop().await;
}
