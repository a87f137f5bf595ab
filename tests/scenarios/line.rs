//! The queue at the front door: one entry per customer on any number of devices, joins before the sale, repeated joins, and
//! joins after leaving.

use onsale_proto::queue::v1::{EntryState, GetPositionRequest, LeaveQueueRequest, PauseQueueRequest};
use tonic::Code;

use super::support::{mesh, sale};

/// Pauses admission, so that positions stay the same.
async fn pause(organizer: &onsale::front_door::Person, event_id: &str) {
    let request = PauseQueueRequest {
        request_id: sale::new_id(),
        event_id: event_id.to_owned(),
        ..PauseQueueRequest::default()
    };
    organizer.queue_admin().pause_queue(request).await.unwrap();
}

#[tokio::test]
async fn two_devices_of_a_customer_share_one_entry() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (organizer, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    pause(&organizer, &event.event_id).await;
    let email = sale::unique_email("devices");
    let phone = door.sign_in(&email, "customer").await.unwrap();
    let other_door = mesh.front_door();
    let laptop = other_door.sign_in(&email, "customer").await.unwrap();

    let first = sale::buyer(&door, &phone, &event.event_id).join().await.unwrap();
    let stranger = sale::customer(&door).await;
    let behind = sale::buyer(&door, &stranger, &event.event_id).join().await.unwrap();
    let second = sale::buyer(&other_door, &laptop, &event.event_id).join().await.unwrap();

    let entry = |standing: &onsale_proto::queue::v1::Standing| {
        let entry = standing.entry.clone().unwrap();
        (entry.entry_id, entry.seq)
    };
    assert_eq!(entry(&first), entry(&second));
    assert_eq!(second.position, 1);
    assert_eq!((entry(&behind).1, behind.position), (2, 2));
}

#[tokio::test]
async fn join_is_refused_before_the_sale_and_accepted_after() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let organizer = sale::organizer(&door).await;
    let event = sale::draft(&organizer, vec![sale::general(10)]).await;
    let person = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &person, &event.event_id);

    let refusal = buyer.join().await.unwrap_err();
    let reason = refusal.reason().unwrap();
    assert!(["EVENT_NOT_FOUND", "QUEUE_NOT_OPEN"].contains(&reason.as_str()), "{refusal}");

    sale::activate(&organizer, &event).await;
    sale::wait_for_open_queue(&door, &event.event_id).await;
    assert_eq!(buyer.join().await.unwrap().entry.unwrap().seq, 1, "the refused join created no entry");
}

#[tokio::test]
async fn repeated_join_keeps_the_entry_and_leaving_ends_it() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (organizer, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    pause(&organizer, &event.event_id).await;
    let (one, two) = (sale::customer(&door).await, sale::customer(&door).await);
    let buyer = sale::buyer(&door, &one, &event.event_id);
    let other = sale::buyer(&door, &two, &event.event_id);

    assert_eq!(buyer.join().await.unwrap().entry.unwrap().seq, 1);
    assert_eq!(buyer.join().await.unwrap().entry.unwrap().seq, 1);
    assert_eq!(other.join().await.unwrap().position, 2);

    let request = LeaveQueueRequest { request_id: sale::new_id(), event_id: event.event_id.clone() };
    let left = one.queue().leave_queue(request).await.unwrap().into_inner().entry.unwrap();
    assert_eq!(left.state(), EntryState::Left);

    let again = buyer.join().await.unwrap();
    assert_eq!((again.entry.unwrap().seq, again.position), (3, 2), "a new entry at the end of the line");
    let request = GetPositionRequest { event_id: event.event_id.clone(), ..GetPositionRequest::default() };
    let standing = two.queue().get_position(request).await.unwrap().into_inner().standing.unwrap();
    assert_eq!(standing.position, 1, "the next customer moved up");
}

#[tokio::test]
async fn customer_who_never_joined_has_no_position() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let person = sale::customer(&door).await;
    let request = GetPositionRequest { event_id: event.event_id.clone(), ..GetPositionRequest::default() };
    assert_eq!(person.queue().get_position(request).await.unwrap_err().code(), Code::NotFound);
}
