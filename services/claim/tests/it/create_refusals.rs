//! Refusals of `CreateClaim`: each has the contract's reason and leaves nothing held.

use std::time::Duration;

use onsale_kit::auth::{SigningKey, TokenFields, TokenSigner};
use onsale_proto::{
    claim::v1::{self as pb, create_claim_request::Right},
    inventory::v1::HoldState,
    r#type::v1::UnitSelection,
};
use onsale_types::{Clock, SystemClock, Timestamp};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use uuid::Uuid;

use crate::support::{Customer, World, metadata, reason};

async fn refused(world: &World, customer: &Customer, request: pb::CreateClaimRequest) -> Status {
    let status = world.create(customer, request).await.expect_err("the request is invalid");
    assert_eq!(world.inventory.units_in(HoldState::Held), 0, "something is held after {status:?}");
    status
}

#[tokio::test]
async fn customer_without_a_verified_address_is_refused() {
    let world = World::start().await;
    let customer = world.customer_without_email();
    let status = refused(&world, &customer, world.request_units(&customer, 1)).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "EMAIL_NOT_VERIFIED"));
}

#[tokio::test]
async fn forged_and_foreign_turn_tokens_are_refused() {
    let world = World::start().await;
    let (customer, other) = (world.customer(), world.customer());
    let request = world.request_units(&customer, 1);
    let end = SystemClock.now().checked_add(Duration::from_secs(60)).unwrap();
    let stranger = TokenSigner::new(SigningKey::parse(&SigningKey::generate().unwrap()).unwrap(), "queue");
    let claims = serde_json::json!({ "event_id": world.event, "fencing_number": 1 });
    let fields = TokenFields { audience: "onsale-turn", subject: &customer.id, expiry: end };
    for token in [
        "nonsense".to_owned(),
        world.turn_token(&other.id, &world.event, 1, end),
        world.turn_token(&customer.id, &Uuid::now_v7().to_string(), 1, end),
        world.turn_token(&customer.id, &world.event, 0, end),
        world.turn_token("nobody", &world.event, 1, end),
        stranger.sign(&fields, &claims).unwrap(),
        // A genuine token of another customer.
        world.turn_token(&other.id, &world.event, 9, end),
    ] {
        let request = pb::CreateClaimRequest { right: Some(Right::TurnToken(token)), ..request.clone() };
        let status = refused(&world, &customer, request).await;
        assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "TURN_TOKEN_INVALID"));
    }
    let unknown = world.turn_token(&customer.id, &world.event, 77, end);
    let status = refused(
        &world,
        &customer,
        pb::CreateClaimRequest { right: Some(Right::TurnToken(unknown)), ..request.clone() },
    )
    .await;
    assert_eq!(reason(&status), "TURN_TOKEN_INVALID", "a turn that Queue does not know");
    assert_eq!(world.inventory.reserve_calls(), 0);
}

#[tokio::test]
async fn expired_turn_is_refused() {
    let world = World::start().await;
    let customer = world.customer();
    let token = world.turn_token(&customer.id, &world.event, 1, Timestamp::from_secs(1_000));
    let request =
        pb::CreateClaimRequest { right: Some(Right::TurnToken(token)), ..world.request_units(&customer, 1) };
    let status = refused(&world, &customer, request).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "TURN_EXPIRED"));
    assert_eq!(metadata(&status, "expire_time"), "1970-01-01T00:16:40.000000Z");

    // The token has not expired, but Queue returns an end that is past by the database's clock.
    let request = world.request_units(&customer, 1);
    world.queue.grant(&world.event, &customer.id, 1, Timestamp::from_secs(1_000));
    let status = refused(&world, &customer, request).await;
    assert_eq!(reason(&status), "TURN_EXPIRED");
    world.audit().await;
}

#[tokio::test]
async fn refusals_of_queue_are_passed_on() {
    let world = World::start().await;
    let customer = world.customer();
    for refusal in [
        (Code::FailedPrecondition, "TURN_EXPIRED"),
        (Code::FailedPrecondition, "TURN_STALE"),
        (Code::FailedPrecondition, "TURN_ENDED"),
        (Code::PermissionDenied, "CUSTOMER_BLOCKED"),
    ] {
        world.queue.refuse(Some(refusal));
        let status = refused(&world, &customer, world.request_units(&customer, 1)).await;
        assert_eq!((status.code(), reason(&status).as_str()), refusal);
        assert_eq!(metadata(&status, "from"), "queue");
    }
    // Reasons that concern only the services are not passed on.
    world.queue.refuse(Some((Code::PermissionDenied, "ROLE_MISSING")));
    let status = refused(&world, &customer, world.request_units(&customer, 1)).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Internal, "INTERNAL"));
    assert_eq!(world.inventory.reserve_calls(), 0);
}

#[tokio::test]
async fn refusals_of_inventory_are_passed_on() {
    let world = World::start().await;
    let customer = world.customer();
    for refusal in [
        (Code::FailedPrecondition, "UNITS_TAKEN"),
        (Code::FailedPrecondition, "NOT_ENOUGH_UNITS"),
        (Code::FailedPrecondition, "EVENT_NOT_ON_SALE"),
        (Code::NotFound, "EVENT_NOT_FOUND"),
        (Code::NotFound, "SECTOR_NOT_FOUND"),
        (Code::InvalidArgument, "FIELDS_INVALID"),
    ] {
        world.inventory.configure(|inventory| inventory.refuses = Some(refusal));
        let status = refused(&world, &customer, world.request_units(&customer, 1)).await;
        assert_eq!((status.code(), reason(&status).as_str()), refusal);
        assert_eq!(metadata(&status, "from"), "inventory");
    }
    world
        .inventory
        .configure(|inventory| inventory.refuses = Some((Code::InvalidArgument, "HOLD_ID_REUSED")));
    let status = refused(&world, &customer, world.request_units(&customer, 1)).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Internal, "INTERNAL"));
}

#[tokio::test]
async fn refusal_names_every_malformed_field() {
    let world = World::start().await;
    let customer = world.customer();
    let select = |sector: &str, count: u32, units: &[u32]| UnitSelection {
        sector_id: sector.to_owned(),
        count,
        units: units.to_vec(),
    };
    let request = pb::CreateClaimRequest {
        request_id: "no uuid".to_owned(),
        event_id: String::new(),
        right: None,
        selections: vec![
            select("no uuid", 1, &[]),
            select(&world.general, 0, &[]),
            select(&world.general, 1, &[1]),
            select(&world.seated, 0, &[1, 1]),
            select(&Uuid::now_v7().to_string(), 101, &[]),
        ],
    };
    let status = refused(&world, &customer, request.clone()).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "FIELDS_INVALID"));
    let fields: Vec<_> =
        status.get_details_bad_request().unwrap().field_violations.into_iter().map(|it| it.field).collect();
    assert_eq!(
        fields,
        [
            "request_id",
            "event_id",
            "turn_token",
            "selections[0].sector_id",
            "selections[1].count",
            "selections[2].sector_id",
            "selections[2].count",
            "selections[3].units",
            "selections[4].count",
        ]
    );
    for selections in [Vec::new(), vec![select(&world.general, 1, &[]); 11]] {
        let request = pb::CreateClaimRequest { selections, ..world.request_units(&customer, 1) };
        let status = refused(&world, &customer, request).await;
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, "selections");
    }
    assert_eq!(world.inventory.reserve_calls(), 0);
}
