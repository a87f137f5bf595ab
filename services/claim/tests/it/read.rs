//! `GetClaim` and `ListClaims`.

use onsale_proto::claim::v1 as pb;
use tonic::Code;
use tonic_types::StatusExt;
use uuid::Uuid;

use crate::support::{Customer, World, metadata, reason};

async fn list(world: &World, customer: &Customer, request: pb::ListClaimsRequest) -> pb::ListClaimsResponse {
    world.client().list_claims(customer.ask(request)).await.unwrap().into_inner()
}

fn ids(claims: &[pb::Claim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.claim_id.as_str()).collect()
}

#[tokio::test]
async fn claim_is_visible_to_its_customer_and_to_services_only() {
    let world = World::start().await;
    let (owner, other) = (world.customer(), world.customer());
    let claim = world.claim(&owner, 1).await;
    for (customer, id) in [(&other, claim.claim_id.clone()), (&owner, Uuid::now_v7().to_string())] {
        let status = world.get(customer, &id).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CLAIM_NOT_FOUND"));
        assert_eq!(metadata(&status, "claim_id"), id);
    }
    let request = pb::GetClaimRequest { claim_id: claim.claim_id.clone() };
    let seen = world.client().get_claim(world.service_request(request)).await.unwrap().into_inner();
    assert_eq!(seen.claim.unwrap(), claim);
    let malformed = world.get(&owner, "first").await.unwrap_err();
    assert_eq!(reason(&malformed), "FIELDS_INVALID");
    assert!(list(&world, &other, pb::ListClaimsRequest::default()).await.claims.is_empty());
}

#[tokio::test]
async fn list_is_newest_first_paged_and_filtered() {
    let world = World::start().await;
    let customer = world.customer();
    let mut made = Vec::new();
    for _ in 0..5 {
        let claim = world.claim(&customer, 1).await;
        made.insert(0, world.release(&customer, &claim.claim_id).await.unwrap());
    }
    let open = world.claim(&customer, 1).await;
    made.insert(0, open.clone());

    let all = list(&world, &customer, pb::ListClaimsRequest::default()).await;
    assert_eq!((all.claims.clone(), all.next_page_token.as_str()), (made.clone(), ""));

    let mut seen = Vec::new();
    let mut request = pb::ListClaimsRequest { page_size: 4, ..pb::ListClaimsRequest::default() };
    loop {
        let page = list(&world, &customer, request.clone()).await;
        assert!(page.claims.len() <= 4);
        seen.extend(page.claims);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(seen, made);

    let claimed = pb::ListClaimsRequest {
        states: vec![pb::ClaimState::Claimed.into()],
        event_id: world.event.clone(),
        ..pb::ListClaimsRequest::default()
    };
    assert_eq!(ids(&list(&world, &customer, claimed).await.claims), [open.claim_id.as_str()]);
    let released =
        pb::ListClaimsRequest { states: vec![pb::ClaimState::Released.into()], ..Default::default() };
    assert_eq!(list(&world, &customer, released).await.claims.len(), 5);
    let elsewhere = pb::ListClaimsRequest { event_id: Uuid::now_v7().to_string(), ..Default::default() };
    assert!(list(&world, &customer, elsewhere).await.claims.is_empty());
}

#[tokio::test]
async fn page_token_is_bound_to_its_customer_and_filters() {
    let world = World::start().await;
    let (customer, other) = (world.customer(), world.customer());
    for _ in 0..2 {
        let claim = world.claim(&customer, 1).await;
        world.release(&customer, &claim.claim_id).await.unwrap();
    }
    let first = pb::ListClaimsRequest { page_size: 1, ..Default::default() };
    let page_token = list(&world, &customer, first).await.next_page_token;
    let foreign = pb::ListClaimsRequest { page_token: page_token.clone(), ..Default::default() };
    let refused = world.client().list_claims(other.ask(foreign)).await.unwrap_err();
    assert_eq!(refused.get_details_bad_request().unwrap().field_violations[0].field, "page_token");
    let filtered = pb::ListClaimsRequest { page_token, states: vec![1], ..Default::default() };
    let refused = world.client().list_claims(customer.ask(filtered)).await.unwrap_err();
    assert_eq!(refused.get_details_bad_request().unwrap().field_violations[0].field, "page_token");
    let nonsense = pb::ListClaimsRequest {
        event_id: "x".to_owned(),
        states: vec![0, 9],
        page_token: "x".to_owned(),
        ..Default::default()
    };
    let refused = world.client().list_claims(customer.ask(nonsense)).await.unwrap_err();
    assert_eq!(refused.get_details_bad_request().unwrap().field_violations.len(), 4);
}
