//! Two Queue pods: changes on one appear on the other, and when the leader is killed, the other pod takes over.

use std::time::{Duration, Instant};

use onsale::front_door::Person;
use onsale_proto::queue::v1::{LeaveQueueRequest, PauseQueueRequest, ResumeQueueRequest};

use super::support::{
    mesh::{self, Mesh},
    pod::{Pod, authorized},
    sale,
};

/// Longest time until turns are granted again. The lease of a dead leader lasts 5 s and turns are granted every second; the
/// remaining 2 s are slack for two cores with twenty processes.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(8);

async fn pause(organizer: &Person, event_id: &str) {
    let request = PauseQueueRequest {
        request_id: sale::new_id(),
        event_id: event_id.to_owned(),
        ..PauseQueueRequest::default()
    };
    organizer.queue_admin().pause_queue(request).await.unwrap();
}

/// Lets customers join through the mesh's own pod and watch on `pod`, kills the leader of the two, and asserts that turns are
/// granted within [`TAKEOVER_TIMEOUT`]. Returns `pod` unless it was the leader.
async fn leader_dies(mesh: &Mesh, pod: Pod) -> Option<Pod> {
    let door = mesh.front_door();
    let (organizer, event) = sale::on_sale(&door, vec![sale::general(20)]).await;
    let event_id = event.event_id.clone();
    // A granted turn shows that one of the pods is the leader.
    let first = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &first, &event_id);
    buyer.join().await.unwrap();
    buyer.wait_for_turn(|_| ()).await.unwrap();
    pause(&organizer, &event_id).await;
    let mut people = Vec::new();
    for _ in 0..3 {
        let person = sale::customer(&door).await;
        sale::buyer(&door, &person, &event_id).join().await.unwrap();
        people.push(person);
    }
    let mut last = pod.watch(&people[2], &event_id).await;
    last.until_position(3).await;
    let leave = LeaveQueueRequest { request_id: sale::new_id(), event_id: event_id.clone() };
    people[0].queue().leave_queue(leave).await.unwrap();
    last.until_position(2).await;

    let resume = ResumeQueueRequest { request_id: sale::new_id(), event_id: event_id.clone() };
    if pod.is_leader() {
        pod.kill();
        let died = Instant::now();
        organizer.queue_admin().resume_queue(resume).await.unwrap();
        for person in &people[1..] {
            sale::buyer(&door, person, &event_id).wait_for_turn(|_| ()).await.unwrap();
        }
        println!("the mesh's own pod took over within {:?}", died.elapsed());
        assert!(died.elapsed() < TAKEOVER_TIMEOUT, "{:?}", died.elapsed());
        None
    } else {
        mesh.kill("queue");
        let died = Instant::now();
        pod.queue_admin().resume_queue(authorized(&organizer, resume)).await.unwrap();
        last.until_turn().await;
        println!(
            "turns were granted again within {:?} by the {} pod",
            died.elapsed(),
            if pod.is_leader() { "other" } else { "restarted" }
        );
        assert!(died.elapsed() < TAKEOVER_TIMEOUT, "{:?}", died.elapsed());
        Some(pod)
    }
}

#[tokio::test]
async fn watchers_get_turns_after_the_queue_leader_is_killed() {
    let mesh = mesh::exclusive().lock().await;
    // The mesh's own pod started first and is the leader.
    let pod = leader_dies(&mesh, Pod::start(&mesh).await).await;
    mesh.wait_for("queue").await;
    // Repeat with the current leader, which may be either pod.
    let pod = leader_dies(&mesh, pod.expect("the second pod was not the leader")).await;
    mesh.wait_for("queue").await;
    drop(pod);
    mesh.audit().await;
}
