//! Refunds and invitations, and everything about which nothing is said yet.

use onsale_proto::events::v1::{
    ClaimReleased, MilestonePassed, PaymentConfirmed, PaymentFailed, PaymentRefunded, QueueExpired,
    QueuePositionUpdate, QueueTurnGranted, QuotaInvitation,
};

use crate::support::{BUYER, World, euros, event, id, seconds};

/// A time that is still to come for as long as this code is used.
const FAR: i64 = 32_503_680_000;

#[tokio::test]
async fn a_refund_is_told_once_per_payment() {
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
    world.tell(&refunded).await;
    world.tell(&refunded).await;
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
async fn an_invitation_is_mailed_with_its_link_and_not_after_its_end() {
    let world = World::new().await;
    let late = invitation(1);
    world.tell(&late).await;
    world.tell(&invitation(FAR)).await;
    let mail = world.only_mail(BUYER).await;
    assert_eq!(mail.subject, "You are invited: Koncert", "an unknown language falls back to the default");
    assert!(mail.text.unwrap().contains("https://tickets.example.com/invitations/1?token=a&b=c"));
    assert_eq!(world.count("SELECT count(*) FROM delivery WHERE state = 'SKIPPED'").await, 1);
}

#[tokio::test]
async fn a_link_that_is_no_page_is_not_mailed() {
    let world = World::new().await;
    world.tell(&QuotaInvitation { accept_url: "javascript:alert(1)".to_owned(), ..invitation(FAR) }).await;
    world.wait_until_idle().await;
    assert!(world.unheard().await[0].contains("accept_url"));
    assert!(world.mails(BUYER).await.is_empty());
}

#[tokio::test]
async fn every_other_topic_is_heard_and_leaves_nothing_behind() {
    let world = World::new().await;
    let event = Some(event("Koncert"));
    world.tell(&PaymentConfirmed { payment_id: id(), ..PaymentConfirmed::default() }).await;
    world.tell(&PaymentFailed { payment_id: id(), ..PaymentFailed::default() }).await;
    world.tell(&ClaimReleased { claim_id: id(), event: event.clone(), ..ClaimReleased::default() }).await;
    world.tell(&QueueTurnGranted { event: event.clone(), ..QueueTurnGranted::default() }).await;
    world.tell(&QueueExpired { event: event.clone(), ..QueueExpired::default() }).await;
    world
        .tell(&QueuePositionUpdate { event, milestone: 100, passed: vec![MilestonePassed::default()] })
        .await;
    world.wait_until_idle().await;
    assert_eq!(world.unheard().await, Vec::<String>::new());
    for table in ["SELECT count(*) FROM job", "SELECT count(*) FROM waiting_order"] {
        assert_eq!(world.count(table).await, 0, "{table}");
    }
    assert_eq!(world.count("SELECT count(*) FROM inbox").await, 6);
}
