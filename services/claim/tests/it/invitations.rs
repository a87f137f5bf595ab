//! Claims by invitation, which Inventory verifies and which need no turn.

use onsale_proto::{
    claim::v1::{self as pb, create_claim_request::Right},
    events::v1::{ClaimReleased, OrderCompleted},
};
use tonic::Code;
use uuid::Uuid;

use crate::support::{Customer, UNITS_MAX, World, reason};

const TOKEN: &str = "an-invitation-of-inventory";

fn invited(world: &World, customer: &Customer, count: u32) -> pb::CreateClaimRequest {
    let right = Some(Right::InvitationToken(TOKEN.to_owned()));
    pb::CreateClaimRequest { right, ..world.request_units(customer, count) }
}

async fn start() -> (World, String) {
    let world = World::start_with(&[("CLAIMS__WINDOW", "100s")]).await;
    let quota = Uuid::now_v7().to_string();
    world.inventory.configure(|inventory| {
        inventory.invitations.insert(TOKEN.to_owned(), quota.clone());
    });
    // Queue knows no customer.
    world.queue.refuse(Some((Code::NotFound, "ENTRY_NOT_FOUND")));
    (world, quota)
}

#[tokio::test]
async fn claim_by_invitation_needs_no_turn_and_lasts_its_window() {
    let (world, quota) = start().await;
    let customer = world.customer();
    let claim = world.create(&customer, invited(&world, &customer, 2)).await.unwrap();
    let seconds = claim.expire_time.unwrap().seconds - claim.create_time.unwrap().seconds;
    assert_eq!(seconds, 100);
    let sql = "SELECT count(*) AS count FROM claim WHERE fencing_number IS NULL AND quota_id IS NOT NULL";
    assert_eq!(world.count(sql).await, 1);
    assert_eq!(world.text("SELECT quota_id::text AS text FROM claim").await, quota);
    world.confirm(world.payment_of(&claim)).await.unwrap();
    let orders = world.events::<OrderCompleted>().await;
    assert_eq!((orders.len(), orders[0].fencing_number), (1, 0), "a claim by invitation has no turn");
    world.audit().await;
}

#[tokio::test]
async fn limit_covers_turns_and_invitations() {
    let (world, _) = start().await;
    let customer = world.customer();
    let claim = world.create(&customer, invited(&world, &customer, UNITS_MAX - 1)).await.unwrap();
    let status = world.create(&customer, invited(&world, &customer, 1)).await.unwrap_err();
    assert_eq!(reason(&status), "CLAIM_OPEN_EXISTS");
    world.confirm(world.payment_of(&claim)).await.unwrap();
    world.queue.refuse(None);
    let status = world.create(&customer, world.request_units(&customer, 2)).await.unwrap_err();
    assert_eq!(reason(&status), "CUSTOMER_LIMIT_EXCEEDED");
    world.claim(&customer, 1).await;
    world.audit().await;
}

#[tokio::test]
async fn event_of_a_claim_by_invitation_has_no_fencing_number() {
    let (world, _) = start().await;
    let customer = world.customer();
    let claim = world.create(&customer, invited(&world, &customer, 1)).await.unwrap();
    world.release(&customer, &claim.claim_id).await.unwrap();
    assert_eq!(world.events::<ClaimReleased>().await[0].fencing_number, 0);
    world.audit().await;
}

#[tokio::test]
async fn invitation_refusals_of_inventory_are_passed_on() {
    let (world, _) = start().await;
    let customer = world.customer();
    let unknown = Some(Right::InvitationToken("invented".to_owned()));
    let unknown = pb::CreateClaimRequest { right: unknown, ..world.request_units(&customer, 1) };
    let status = world.create(&customer, unknown).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::PermissionDenied, "INVITATION_TOKEN_INVALID")
    );
    for reason_of in
        ["INVITATION_NOT_ACCEPTED", "INVITATION_ACCEPTED_BY_ANOTHER", "INVITATION_EXPIRED", "INVITATION_USED"]
    {
        let refusal = (Code::FailedPrecondition, reason_of);
        world.inventory.configure(|inventory| inventory.refuses = Some(refusal));
        let status = world.create(&customer, invited(&world, &customer, 1)).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), refusal);
    }
    world.audit().await;
}

#[tokio::test]
async fn invitation_token_is_not_stored() {
    let (world, _) = start().await;
    let customer = world.customer();
    world.create(&customer, invited(&world, &customer, 1)).await.unwrap();
    for table in ["hold_attempt", "claim", "allowance", "idempotency", "outbox"] {
        let sql = format!("SELECT count(*) AS count FROM claim.{table} t WHERE t::text LIKE '%{TOKEN}%'");
        assert_eq!(world.count_of(&sql).await, 0, "{table}");
    }
}
