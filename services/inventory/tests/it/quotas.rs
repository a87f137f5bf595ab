//! `CreateQuota` and `ListQuotas`: units leave the public sale all or none, and only their organizer sees them.

use onsale_proto::{
    events::v1::InventorySoldOut,
    inventory::v1::{self as pb, EventState, QuotaState},
    r#type::v1::UnitSelection,
};
use prost_types::FieldMask;
use tonic::{Code, Status};

use crate::{
    support::quotas::a_quota,
    support::{
        ORGANIZER, World, an_event, count, exactly, fields, general, numbers, reason, refusal, request_id,
        seated, time,
    },
};

#[tokio::test]
async fn kept_units_leave_the_public_sale() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10), seated("B", &[4, 4])]).await;
    let quota = world.keep(&event, count(&event, 0, 6)).await.unwrap();
    assert_eq!((quota.unit_count, quota.invited_count, quota.used_count), (6, 0, 0));
    assert_eq!((quota.state(), &quota.name[..]), (QuotaState::Open, "Fan club"));
    assert_eq!((&quota.event_id, &quota.sector_id), (&event.event_id, &event.sectors[0].sector_id));
    assert!(quota.create_time.is_some());
    assert_eq!(world.counts(&event).await, (4, 0), "kept units are neither free nor held");
    world.hold(&event, vec![count(&event, 0, 4)]).await.unwrap();
    let (code, text, metadata) = refusal(world.hold(&event, vec![count(&event, 0, 1)]).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "NOT_ENOUGH_UNITS"));
    assert_eq!(metadata["free_count"], "0");

    world.keep(&event, exactly(&event, 1, &[2, 3])).await.unwrap();
    let seats = world.availability(&event).await.sectors.remove(1);
    assert_eq!((seats.free_count, seats.held_count, seats.free_map), (6, 0, vec![0b1111_1001]));
    let (_, text, metadata) = refusal(world.hold(&event, vec![exactly(&event, 1, &[1, 2])]).await);
    assert_eq!((&text[..], &metadata["taken_units"][..]), ("UNITS_TAKEN", "2"));
    world.assert_counts().await;
}

#[tokio::test]
async fn pool_with_kept_units_sells_none_of_them() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 8), seated("B", &[8])]).await;
    for sector in [0, 1] {
        world.keep(&event, count(&event, sector, 5)).await.unwrap();
        world.set_pool(&event, sector, &[0xff]).await;
        for _ in 0..3 {
            world.hold(&event, vec![count(&event, sector, 1)]).await.unwrap();
        }
        world.set_pool(&event, sector, &[0xff]).await;
        assert_eq!(reason(world.hold(&event, vec![count(&event, sector, 1)]).await).1, "NOT_ENOUGH_UNITS");
    }
    assert_eq!(world.taken().await, 16);
    world.assert_counts().await;
}

#[tokio::test]
async fn new_quota_leaves_the_pool_immediately() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("B", &[8])]).await;
    world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0b0111_1111]));
    world.keep(&event, exactly(&event, 0, &[7, 8])).await.unwrap();
    assert_eq!(world.pool_bytes(&event, 0).await, Some(vec![0b0111_1100]));
}

#[tokio::test]
async fn quota_gets_all_of_its_units_or_none() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5), seated("B", &[4])]).await;
    world.hold(&event, vec![count(&event, 0, 2), exactly(&event, 1, &[2])]).await.unwrap();
    let sector_id = |sector: usize| event.sectors[sector].sector_id.clone();
    let (code, text, metadata) = refusal(world.keep(&event, count(&event, 0, 4)).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "NOT_ENOUGH_UNITS"));
    assert_eq!((&metadata["sector_id"], &metadata["free_count"][..]), (&sector_id(0), "3"));
    let (code, text, metadata) = refusal(world.keep(&event, exactly(&event, 1, &[1, 2])).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "UNITS_TAKEN"));
    assert_eq!((&metadata["sector_id"], &metadata["taken_units"][..]), (&sector_id(1), "2"));
    assert_eq!(metadata["alternative_units"], "3,4");
    assert_eq!(world.taken().await, 3);
    assert!(world.list_quotas(&event).await.is_empty());
    world.assert_counts().await;
}

#[tokio::test]
async fn invalid_quotas_are_refused_with_every_field() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5), seated("B", &[4])]).await;
    let create = |message| async { world.create_quota(ORGANIZER, message).await };
    let empty = create(pb::CreateQuotaRequest::default()).await;
    assert_eq!(fields(empty), ["request_id", "event_id", "name", "selection", "return_time"]);
    let with = |selection| create(a_quota(&event, selection));
    assert_eq!(fields(with(count(&event, 0, 6)).await), ["selection.count"]);
    assert_eq!(fields(with(count(&event, 0, 0)).await), ["selection"]);
    assert_eq!(fields(with(count(&event, 0, 1_000_001)).await), ["selection"]);
    assert_eq!(fields(with(exactly(&event, 0, &[1])).await), ["selection.units"]);
    assert_eq!(fields(with(exactly(&event, 1, &[5])).await), ["selection.units"]);
    assert_eq!(fields(with(exactly(&event, 1, &[0])).await), ["selection.units"]);
    assert_eq!(fields(with(exactly(&event, 1, &[1, 1])).await), ["selection"]);
    let both = UnitSelection { count: 1, ..exactly(&event, 1, &[1]) };
    assert_eq!(fields(with(both).await), ["selection"]);
    let unknown = UnitSelection { sector_id: request_id(), count: 1, units: Vec::new() };
    let (code, text, metadata) = refusal(with(unknown.clone()).await);
    assert_eq!((code, &text[..]), (Code::NotFound, "SECTOR_NOT_FOUND"));
    assert_eq!(metadata["sector_id"], unknown.sector_id);
    for return_time in [time(1), time(4_000_000_000)] {
        let late = pb::CreateQuotaRequest { return_time, ..a_quota(&event, count(&event, 0, 1)) };
        assert_eq!(fields(create(late).await), ["return_time"]);
    }
    let long = pb::CreateQuotaRequest { name: "x".repeat(101), ..a_quota(&event, count(&event, 0, 1)) };
    assert_eq!(fields(create(long).await), ["name"]);
    assert_eq!(world.taken().await, 0);
}

#[tokio::test]
async fn quotas_are_hidden_from_other_organizers() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5)])).await.unwrap();
    let list = |event: &pb::Event| {
        let message = pb::ListQuotasRequest { event_id: event.event_id.clone(), ..Default::default() };
        let request = world.as_organizer("organizer-two", message);
        async { world.quotas().await.list_quotas(request).await }
    };
    let hidden = (Code::NotFound, "EVENT_NOT_FOUND".to_owned());
    let create = |event: &pb::Event| world.create_quota("organizer-two", a_quota(event, count(event, 0, 1)));
    assert_eq!(reason(create(&draft).await), hidden);
    assert_eq!(reason(list(&draft).await), hidden);
    let event = world.activate(&draft.event_id).await.unwrap();
    let foreign = (Code::PermissionDenied, "EVENT_NOT_OWNED".to_owned());
    assert_eq!(reason(create(&event).await), foreign);
    assert_eq!(reason(list(&event).await), foreign);
    let nowhere = pb::Event { event_id: request_id(), ..event.clone() };
    assert_eq!(reason(create(&nowhere).await), hidden);
    assert_eq!(world.taken().await, 0);
}

#[tokio::test]
async fn repeated_request_runs_once_and_another_body_is_refused() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    let message = a_quota(&event, count(&event, 0, 2));
    let quota = world.create_quota(ORGANIZER, message.clone()).await.unwrap();
    assert_eq!(world.create_quota(ORGANIZER, message.clone()).await.unwrap(), quota);
    assert_eq!(world.taken().await, 2);
    let other = pb::CreateQuotaRequest { name: "Other".to_owned(), ..message };
    let reused = (Code::InvalidArgument, "REQUEST_ID_REUSED".to_owned());
    assert_eq!(reason(world.create_quota(ORGANIZER, other).await), reused);
}

#[tokio::test]
async fn quota_of_an_ended_event_is_refused() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 5)]).await;
    world.end(&event.event_id).await.unwrap();
    let (code, text, metadata) = refusal(world.keep(&event, count(&event, 0, 1)).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_TRANSITION_INVALID"));
    assert_eq!(metadata["state"], "ENDED");
}

#[tokio::test]
async fn quotas_are_paged_oldest_first() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 9)]).await;
    let other = world.on_sale(vec![general("A", 9)]).await;
    world.keep(&other, count(&other, 0, 1)).await.unwrap();
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.keep(&event, count(&event, 0, 1)).await.unwrap());
    }
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    let page = |event_id: &str, page_token: &str| {
        let (event_id, page_token) = (event_id.to_owned(), page_token.to_owned());
        let message = pb::ListQuotasRequest { event_id, page_size: 2, page_token };
        let request = world.as_organizer(ORGANIZER, message);
        async { world.quotas().await.list_quotas(request).await.map(tonic::Response::into_inner) }
    };
    loop {
        let answer = page(&event.event_id, &page_token).await.unwrap();
        assert!(answer.quotas.len() <= 2);
        listed.extend(answer.quotas);
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            break;
        }
        assert_eq!(fields(page(&other.event_id, &page_token).await), ["page_token"]);
    }
    assert_eq!(listed, made);
}

async fn update(
    world: &World,
    event_id: &str,
    event: pb::Event,
    paths: &[&str],
) -> Result<pb::Event, Status> {
    let message = pb::UpdateEventRequest {
        request_id: request_id(),
        event_id: event_id.to_owned(),
        event: Some(event),
        update_mask: Some(FieldMask { paths: paths.iter().map(ToString::to_string).collect() }),
    };
    let answer = world.events.clone().update_event(world.as_organizer(ORGANIZER, message)).await?;
    Ok(answer.into_inner().event.unwrap())
}

#[tokio::test]
async fn draft_with_a_quota_keeps_its_sector_and_sells_the_rest() {
    let world = World::start().await;
    let draft = world.create(an_event(vec![general("A", 5), seated("B", &[4])])).await.unwrap();
    world.keep(&draft, exactly(&draft, 1, &[1, 2])).await.unwrap();
    world.keep(&draft, exactly(&draft, 1, &[3])).await.unwrap();
    assert_eq!(world.pool_bytes(&draft, 1).await, None, "a draft has no pool");
    let sectors = |sectors: Vec<pb::Sector>| {
        let (world, id) = (&world, &draft.event_id);
        async move { update(world, id, pb::Event { sectors, ..pb::Event::default() }, &["sectors"]).await }
    };
    let [a, b] = &draft.sectors[..] else { panic!("two sectors") };
    assert_eq!(fields(sectors(vec![a.clone()]).await), ["event.sectors"]);
    let reshaped = pb::Sector { layout: seated("B", &[2, 2]).layout, ..b.clone() };
    assert_eq!(fields(sectors(vec![a.clone(), reshaped]).await), ["event.sectors[1].capacity"]);
    let early = pb::Event { start_time: time(3_900_000_000), ..pb::Event::default() };
    assert_eq!(fields(update(&world, &draft.event_id, early, &["start_time"]).await), ["event.start_time"]);

    let cheaper = pb::Sector { price: crate::support::euros(1), ..b.clone() };
    let grown = pb::Sector { capacity: 50, ..a.clone() };
    let changed = sectors(vec![cheaper, grown]).await.unwrap();
    assert_eq!(changed.sectors[0].sector_id, b.sector_id);
    let event = world.activate(&draft.event_id).await.unwrap();
    assert_eq!(event.state(), EventState::OnSale);
    assert_eq!(world.counts(&event).await, (1, 0));
    let last = world.hold(&event, vec![count(&event, 0, 1)]).await.unwrap();
    assert_eq!(numbers(&last, 0), [4]);
    world.assert_counts().await;
}

#[tokio::test]
async fn event_is_sold_out_when_all_units_are_kept_or_sold() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 3), general("B", 2)]).await;
    let hold = world.hold(&event, vec![count(&event, 0, 3)]).await.unwrap();
    world.keep(&event, count(&event, 1, 2)).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::OnSale, "units are held");
    world.commit(&hold.hold_id).await.unwrap();
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);

    let draft = world.create(an_event(vec![general("A", 3)])).await.unwrap();
    world.keep(&draft, count(&draft, 0, 3)).await.unwrap();
    assert_eq!(world.get(&draft.event_id).await.state(), EventState::Draft);
    let activated = world.activate(&draft.event_id).await.unwrap();
    assert_eq!(activated.state(), EventState::SoldOut);

    let kept = world.on_sale(vec![general("A", 3)]).await;
    world.keep(&kept, count(&kept, 0, 3)).await.unwrap();
    assert_eq!(world.get(&kept.event_id).await.state(), EventState::SoldOut);
    let published = world.published::<InventorySoldOut>().await;
    let published: Vec<_> = published.iter().map(|published| published.event_id.as_str()).collect();
    assert_eq!(published, [&event.event_id[..], &draft.event_id, &kept.event_id]);
    world.assert_counts().await;
}
