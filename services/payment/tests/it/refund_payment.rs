//! Money back: when a claim cannot be served, and when an organizer says so.

use onsale_proto::{
    auth::v1::Role,
    events::v1::PaymentRefunded,
    payment::v1::{Payment, PaymentState, RefundPaymentRequest, RefundReason, RefundState},
};
use onsale_sandbox::payments::Behaviour;
use onsale_types::{ClaimId, RequestId};
use tonic::{Code, Status};

use crate::{
    support::neighbors::{Confirming, EMAIL},
    support::{Person, World, metadata, reason, signed},
};

async fn ask(world: &World, person: &Person, request: &RefundPaymentRequest) -> Result<Payment, Status> {
    let answer = world.payments().await.refund_payment(signed(&person.token, request.clone())).await?;
    Ok(answer.into_inner().payment.unwrap())
}

fn request(payment: &Payment, reason: RefundReason) -> RefundPaymentRequest {
    RefundPaymentRequest {
        request_id: RequestId::generate().to_string(),
        payment_id: payment.payment_id.clone(),
        reason: reason.into(),
    }
}

/// A payment whose claim was served.
async fn served(world: &World) -> (Person, ClaimId, Payment) {
    let (ana, claim, payment) = world.pending().await;
    world.press(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    world.until_nothing_is_owed().await;
    (ana, claim, payment)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_money_of_a_claim_that_cannot_be_served_goes_back_and_the_buyer_hears_of_it() {
    let world = World::new().await;
    for (index, (confirming, expected)) in [
        (Confirming::Rejects, RefundReason::ClaimRejected),
        (Confirming::AmountDiffers, RefundReason::ClaimRejected),
        (Confirming::PaidByAnother, RefundReason::Duplicate),
    ]
    .into_iter()
    .enumerate()
    {
        world.mesh.facts().confirming = confirming;
        let (ana, claim, payment) = world.pending().await;
        world.press(&payment, "pay").await;
        let refunded = world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
        let refund = refunded.refund.unwrap();
        assert_eq!((refund.reason(), refund.state()), (expected, RefundState::Completed));
        assert_eq!(refund.amount, payment.amount);
        let told: Vec<PaymentRefunded> = world.events(claim).await;
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].buyer_email.as_str(), told[0].buyer_locale.as_str()), (EMAIL, "hr"));
        assert_eq!(told[0].event.as_ref().unwrap().name, "Derby");
        assert_eq!(told[0].reason(), expected);
        assert_eq!(world.provider.refund_count(), index + 1);
    }
    assert!(world.mesh.facts().voided.is_empty(), "there were no tickets");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_is_asked_for_until_the_provider_accepts_and_made_once() {
    let world = World::new().await;
    world.mesh.facts().confirming = Confirming::Rejects;
    let (ana, claim, payment) = world.pending().await;
    world.provider.set_behaviour(Behaviour { fail_calls: 2, lose_answers: 2, ..Behaviour::default() });
    world.press(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert_eq!(world.provider.refund_count(), 1);
    assert_eq!(world.events::<PaymentRefunded>(claim).await.len(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_organizer_of_the_event_gives_money_back_after_the_tickets_are_void() {
    let world = World::new().await;
    let (ana, claim, payment) = served(&world).await;
    let olga = world.person("olga", &[Role::Organizer]);
    let goodwill = request(&payment, RefundReason::Goodwill);
    let status = ask(&world, &olga, &goodwill).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "PAYMENT_NOT_FOUND"));
    world.mesh.facts().organizers.insert(payment.event_id.clone(), olga.organizer);
    assert!(world.get(&olga, &payment.payment_id).await.is_ok(), "hers to see");

    world.mesh.facts().is_checked_in = true;
    let status = ask(&world, &olga, &goodwill).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "TICKET_CHECKED_IN"));
    let kept = world.get(&ana, &payment.payment_id).await.unwrap();
    assert_eq!((kept.state(), kept.refund), (PaymentState::Confirmed, None), "withdrawn");
    world.mesh.facts().is_checked_in = false;
    let asked = ask(&world, &olga, &goodwill).await.unwrap();
    assert!(asked.refund.is_some());
    assert!(world.mesh.facts().voided.contains(&claim.to_string()));
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    let repeated = ask(&world, &olga, &goodwill).await.unwrap();
    assert_eq!(repeated.state(), PaymentState::Refunded);
    let another = ask(&world, &olga, &request(&payment, RefundReason::EventCanceled)).await.unwrap();
    assert_eq!(another.refund.unwrap().reason(), RefundReason::Goodwill, "once only");
    assert_eq!(world.provider.refund_count(), 1);
    let changed = RefundPaymentRequest { reason: RefundReason::EventCanceled.into(), ..goodwill };
    let status = ask(&world, &olga, &changed).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_ID_REUSED");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_whose_asker_died_before_the_tickets_were_void_is_finished_and_void_comes_first() {
    let world = World::new().await;
    let (ana, claim, payment) = served(&world).await;
    let service = world.person("support", &[Role::Service]);
    let goodwill = request(&payment, RefundReason::Goodwill);
    world.mesh.facts().is_ticketing_away = true;
    let status = ask(&world, &service, &goodwill).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let asked = world.get(&ana, &payment.payment_id).await.unwrap();
    assert_eq!(asked.refund.unwrap().state(), RefundState::Pending, "stored before the tickets are touched");
    assert_eq!(world.provider.refund_count(), 0, "no money while the tickets admit");
    let world = world.restart(async |_provider, mesh| mesh.facts().is_ticketing_away = false).await;
    let ana = world.customer("ana");
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert!(world.mesh.facts().voided.contains(&claim.to_string()));
    assert_eq!(world.provider.refund_count(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_back_what_was_paid_twice_leaves_the_tickets_of_the_other_payment() {
    let world = World::new().await;
    world.mesh.facts().confirming = Confirming::Unreachable;
    let (ana, _, payment) = world.pending().await;
    world.press(&payment, "pay").await;
    world.until(&ana, &payment.payment_id, PaymentState::Confirmed).await;
    let service = world.person("support", &[Role::Service]);
    let goodwill = request(&payment, RefundReason::Goodwill);
    // Whose the tickets are is not known yet.
    let status = ask(&world, &service, &goodwill).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    world.mesh.facts().confirming = Confirming::PaidByAnother;
    let refunded = ask(&world, &service, &goodwill).await.unwrap();
    assert_eq!(refunded.refund.unwrap().reason(), RefundReason::Duplicate);
    world.until(&ana, &payment.payment_id, PaymentState::Refunded).await;
    assert!(world.mesh.facts().voided.is_empty(), "they are the other payment's");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gives_back_what_was_not_taken_nor_for_a_reason_that_is_not_theirs() {
    let world = World::new().await;
    let (_, _, payment) = world.pending().await;
    let service = world.person("claim", &[Role::Service]);
    let status = ask(&world, &service, &request(&payment, RefundReason::ClaimRejected)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::FailedPrecondition, "PAYMENT_NOT_REFUNDABLE")
    );
    assert_eq!(metadata(&status, "state"), "PENDING");
    assert!(world.mesh.facts().voided.is_empty());

    let olga = world.person("olga", &[Role::Organizer]);
    world.mesh.facts().organizers.insert(payment.event_id.clone(), olga.organizer);
    let status = ask(&world, &olga, &request(&payment, RefundReason::Duplicate)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "FIELDS_INVALID"));
    let customer = world.customer("ana");
    let status = ask(&world, &customer, &request(&payment, RefundReason::Goodwill)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "ROLE_MISSING"));
    let both = world.person("ana", &[Role::Customer, Role::Organizer]);
    let status = ask(&world, &both, &request(&payment, RefundReason::Goodwill)).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "a customer's own payment is not theirs to give back");
    world.stop().await;
}
