//! `ListNeighbors`: who stands around the caller, and nothing of them but what they chose to show.

use onsale_proto::queue::v1::{self as pb};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::world::{Person, World, fact, refused};

async fn neighbors(
    world: &World,
    person: &Person,
    event: &str,
    neighbors_max: u32,
) -> Result<pb::ListNeighborsResponse, Status> {
    let request = pb::ListNeighborsRequest { event_id: event.to_owned(), neighbors_max };
    Ok(world.customers().list_neighbors(person.ask(request)).await?.into_inner())
}

fn seqs(neighbors: &[pb::Neighbor]) -> Vec<u64> {
    neighbors.iter().map(|neighbor| neighbor.seq).collect()
}

fn positions(neighbors: &[pb::Neighbor]) -> Vec<u64> {
    neighbors.iter().map(|neighbor| neighbor.position).collect()
}

#[tokio::test]
async fn the_first_has_nobody_before_the_last_nobody_after_and_the_middle_both() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(15, &event).await;
    let first = neighbors(&world, &people[0], &event, 0).await.unwrap();
    assert_eq!((first.position, first.before.len()), (1, 0));
    // Five when not asked for a number.
    assert_eq!((seqs(&first.after), positions(&first.after)), (vec![2, 3, 4, 5, 6], vec![2, 3, 4, 5, 6]));
    let middle = neighbors(&world, &people[7], &event, 3).await.unwrap();
    assert_eq!(
        (middle.position, seqs(&middle.before), seqs(&middle.after)),
        (8, vec![5, 6, 7], vec![9, 10, 11])
    );
    let last = neighbors(&world, &people[14], &event, 20).await.unwrap();
    assert_eq!((last.position, seqs(&last.before), last.after.len()), (15, (1..=14).collect(), 0));
    assert_eq!(last.revision, world.position(&people[14], &event).await.unwrap().revision);
    let alone = world.open_queue().await;
    let only = world.join_all(1, &alone).await.remove(0);
    let only = neighbors(&world, &only, &alone, 20).await.unwrap();
    assert_eq!((only.position, only.before.len(), only.after.len()), (1, 0, 0));
}

#[tokio::test]
async fn who_left_or_was_admitted_is_nobodys_neighbor() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "2")]).await;
    let event = world.open_queue().await;
    let people = world.join_all(12, &event).await;
    world.leave(&people[4], &event).await.unwrap();
    world.leave(&people[8], &event).await.unwrap();
    world.inventory.set_free(1_000);
    world.turn(&people[1], &event).await;
    let around = neighbors(&world, &people[6], &event, 2).await.unwrap();
    assert_eq!(
        (around.position, seqs(&around.before), positions(&around.before)),
        (4, vec![4, 6], vec![2, 3])
    );
    assert_eq!((seqs(&around.after), positions(&around.after)), (vec![8, 10], vec![5, 6]));
    let at_the_end = neighbors(&world, &people[11], &event, 1).await.unwrap();
    assert_eq!((at_the_end.position, positions(&at_the_end.before)), (8, vec![7]));
}

#[tokio::test]
async fn a_neighbor_shows_what_they_chose_to_and_nothing_else() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let named = world.customer();
    let request = pb::JoinQueueRequest {
        request_id: Uuid::now_v7().to_string(),
        event_id: event.clone(),
        display_name: "Žana".to_owned(),
        avatar_url: "https://pictures.test/1.png".to_owned(),
    };
    world.customers().join_queue(named.ask(request)).await.unwrap();
    let people = world.join_all(2, &event).await;
    let around = neighbors(&world, &people[0], &event, 5).await.unwrap();
    let shown = pb::Neighbor {
        seq: 1,
        position: 1,
        display_name: "Žana".to_owned(),
        avatar_url: "https://pictures.test/1.png".to_owned(),
    };
    let hidden = pb::Neighbor { seq: 3, position: 3, ..pb::Neighbor::default() };
    assert_eq!((around.before, around.after), (vec![shown], vec![hidden]));
}

#[tokio::test]
async fn who_does_not_wait_has_no_neighbors() {
    let world = World::start_with(&[("POLICY__OPEN_TURNS_MAX", "1")]).await;
    let event = world.selling_queue().await;
    let people = world.join_all(3, &event).await;
    world.turn(&people[0], &event).await;
    let state = |answer| {
        let details = refused(answer, Code::FailedPrecondition, "ENTRY_NOT_WAITING");
        fact(&details, "state")
    };
    assert_eq!(state(neighbors(&world, &people[0], &event, 5).await).as_deref(), Some("ADMITTED"));
    world.leave(&people[2], &event).await.unwrap();
    assert_eq!(state(neighbors(&world, &people[2], &event, 5).await).as_deref(), Some("LEFT"));
    let nobody = neighbors(&world, &world.customer(), &event, 5).await;
    refused(nobody, Code::NotFound, "ENTRY_NOT_FOUND");
    let unknown = neighbors(&world, &people[1], &Uuid::now_v7().to_string(), 5).await;
    refused(unknown, Code::NotFound, "EVENT_NOT_FOUND");
}

#[tokio::test]
async fn more_than_twenty_are_not_answered() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let people = world.join_all(44, &event).await;
    let around = neighbors(&world, &people[22], &event, 20).await.unwrap();
    assert_eq!((around.before.len(), around.after.len(), around.position), (20, 20, 23));
    assert_eq!((around.before[0].position, around.after[19].position), (3, 43));
    let answer = neighbors(&world, &people[22], &event, 21).await;
    refused(answer, Code::InvalidArgument, "FIELDS_INVALID");
    refused(neighbors(&world, &people[0], "x", 1).await, Code::InvalidArgument, "FIELDS_INVALID");
    let organizer = neighbors(&world, &world.organizer, &event, 1).await;
    refused(organizer, Code::PermissionDenied, "ROLE_MISSING");
}

#[tokio::test]
async fn a_windowed_queue_does_not_know_who_is_next_to_whom() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let windowed = "UPDATE queue SET mode = 'WINDOWED' WHERE event_id = $1";
    let event_id = Uuid::parse_str(&event).unwrap();
    world.postgres.execute("set mode", windowed, &[&event_id]).await.unwrap();
    let answer = neighbors(&world, &world.customer(), &event, 5).await;
    refused(answer, Code::FailedPrecondition, "NEIGHBORS_NOT_TRACKED");
}
