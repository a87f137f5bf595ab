//! Refund and invitation mails, and the topics that cause no mail.

use onsale_proto::events::v1::{
    ClaimReleased, MilestonePassed, PaymentConfirmed, PaymentFailed, PaymentRefunded, QueueExpired,
    QueuePositionUpdate, QueueTurnGranted, QuotaInvitation,
};

use crate::support::{BUYER, World, euros, event, id, seconds};

/// The year 3000, in seconds.
const FAR_FUTURE: i64 = 32_503_680_000;

#[tokio::test]
async fn repeated_refund_event_causes_one_mail() {
    let world = World::new().await;
    let refunded = PaymentRefunded {
        payment_id: id(),
        claim_id: id(),
        event: Some(event("Koncert")),
        customer_id: id(),
        buyer_email: BUYER.to_owned(),
        buyer_locale: "hr-HR".to_owned(),
        amount: euros(9_980),
        reason: 1,
        refund_time: Some(seconds(1)),
    };
    world.publish(&refunded).await;
    world.publish(&refunded).await;
    let mail = world.only_mail(BUYER).await;
    assert_eq!(mail.subject, "Povrat novca: Koncert");
    assert!(mail.text.unwrap().contains("Vratili smo vam 99,80\u{a0}€"));
}

fn invitation(expire_seconds: i64) -> QuotaInvitation {
    QuotaInvitation {
        invitation_id: id(),
        event: Some(event("Koncert")),
        quota_name: "Fan klub".to_owned(),
        sector_name: "Parter".to_owned(),
        unit_count: 2,
        email: BUYER.to_owned(),
        locale: "fr".to_owned(),
        accept_url: "https://tickets.example.com/invitations/1?token=a&b=c".to_owned(),
        expire_time: Some(seconds(expire_seconds)),
    }
}

#[tokio::test]
async fn invitation_is_mailed_unless_it_has_expired() {
    let world = World::new().await;
    let expired = invitation(1);
    world.publish(&expired).await;
    world.publish(&invitation(FAR_FUTURE)).await;
    let mail = world.only_mail(BUYER).await;
    assert_eq!(mail.subject, "You are invited: Koncert", "an unknown language falls back to the default");
    assert!(mail.text.unwrap().contains("https://tickets.example.com/invitations/1?token=a&b=c"));
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'SKIPPED'").await, 1);
}

#[tokio::test]
async fn invitation_with_a_script_url_goes_to_the_dead_letters() {
    let world = World::new().await;
    world
        .publish(&QuotaInvitation { accept_url: "javascript:alert(1)".to_owned(), ..invitation(FAR_FUTURE) })
        .await;
    world.wait_until_idle().await;
    assert!(world.dead_event_errors().await[0].contains("accept_url"));
    assert!(world.mails(BUYER).await.is_empty());
}

#[tokio::test]
async fn topics_without_mails_are_acknowledged_without_effect() {
    let world = World::new().await;
    let event = Some(event("Koncert"));
    world.publish(&PaymentConfirmed { payment_id: id(), ..PaymentConfirmed::default() }).await;
    world.publish(&PaymentFailed { payment_id: id(), ..PaymentFailed::default() }).await;
    world.publish(&ClaimReleased { claim_id: id(), event: event.clone(), ..ClaimReleased::default() }).await;
    world.publish(&QueueTurnGranted { event: event.clone(), ..QueueTurnGranted::default() }).await;
    world.publish(&QueueExpired { event: event.clone(), ..QueueExpired::default() }).await;
    world
        .publish(&QueuePositionUpdate { event, milestone: 100, passed: vec![MilestonePassed::default()] })
        .await;
    world.wait_until_idle().await;
    assert_eq!(world.dead_event_errors().await, Vec::<String>::new());
    for table in ["SELECT count(*) FROM job", "SELECT count(*) FROM waiting_order"] {
        assert_eq!(world.count(table).await, 0, "{table}");
    }
    assert_eq!(world.count("SELECT count(*) FROM inbox").await, 6);
}
