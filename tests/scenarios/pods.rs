//! Two queues at once: what is done on one is seen on the other, and when the one that keeps the lines dies, the other does.

use std::time::{Duration, Instant};

use onsale::front_door::Person;
use onsale_proto::queue::v1::{LeaveQueueRequest, PauseQueueRequest, ResumeQueueRequest};

use super::support::{
    mesh::{self, Mesh},
    pod::{Pod, authorized},
    sale,
};

/// A dead leader's lease lasts 5 s, and turns are granted every second; the rest is for two cores with twenty processes.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(8);

async fn pause(organizer: &Person, event_id: &str) {
    let request = PauseQueueRequest {
        request_id: sale::new_id(),
        event_id: event_id.to_owned(),
        ..PauseQueueRequest::default()
    };
    organizer.queue_admin().pause_queue(request).await.unwrap();
}

/// Customers who stand in line by the mesh's own queue and watch on the other, in the middle of a sale; the one that keeps
/// the lines is killed, and the turns come nevertheless. Answers the other queue if it lives.
async fn leader_dies(mesh: &Mesh, pod: Pod) -> Option<Pod> {
    let door = mesh.front_door();
    let (organizer, event) = sale::on_sale(&door, vec![sale::general(20)]).await;
    let event_id = event.event_id.clone();
    // One before has had a turn: somebody leads.
    let first = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &first, &event_id);
    buyer.join().await.unwrap();
    buyer.turn(|_| ()).await.unwrap();
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
            sale::buyer(&door, person, &event_id).turn(|_| ()).await.unwrap();
        }
        println!("the mesh's queue took over within {:?}", died.elapsed());
        assert!(died.elapsed() < TAKEOVER_TIMEOUT, "{:?}", died.elapsed());
        None
    } else {
        mesh.kill("queue");
        let died = Instant::now();
        pod.queue_admin().resume_queue(authorized(&organizer, resume)).await.unwrap();
        last.until_turn().await;
        println!(
            "turns came again within {:?}, {}",
            died.elapsed(),
            if pod.is_leader() { "from the other" } else { "from the restarted" }
        );
        assert!(died.elapsed() < TAKEOVER_TIMEOUT, "{:?}", died.elapsed());
        Some(pod)
    }
}

#[tokio::test]
async fn who_joins_on_one_queue_and_watches_on_another_gets_the_turn_though_the_leader_dies() {
    let mesh = mesh::exclusive().lock().await;
    // It comes second, so it does not lead; the one it meets does.
    let pod = leader_dies(&mesh, Pod::start(&mesh).await).await;
    mesh.wait_for("queue").await;
    // And once more, whoever leads now.
    let pod = leader_dies(&mesh, pod.expect("it did not lead")).await;
    mesh.wait_for("queue").await;
    drop(pod);
    mesh.audit().await;
}
