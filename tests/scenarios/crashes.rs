//! Claim and Inventory die at each step between the reservation and the claim. Who asks again gets the claim; what nobody
//! asks for again is free soon after; and the books balance.

use std::{
    cell::Cell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use onsale::{front_door::Person, patience::patiently};
use onsale_kit::deadline::Deadline;
use onsale_proto::{
    claim::v1::{Claim, ClaimState, CreateClaimRequest, create_claim_request::Right},
    inventory::v1::Event,
    r#type::v1::UnitSelection,
};
use onsale_testkit::wait_until;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::support::{
    PATIENCE,
    fail_point::{self, FailPoint, Moment},
    mesh::{self, Mesh},
    sale,
};

/// Within this time every unit is a claim's, or free.
const ACCOUNTED: Duration = Duration::from_secs(30);

/// Where a process dies.
struct Step {
    what: &'static str,
    victim: &'static str,
    table: &'static str,
    moment: Moment,
    /// What the stopped session does when its process is dead.
    then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is gone as well.
    Discard,
    /// It belongs to another process, which goes on.
    LetThrough,
    /// It commits while the process is frozen, and the process dies without having heard of it.
    CommitUnheard,
}

const STEPS: [Step; 6] = [
    Step {
        what: "claim, before the attempt is noted",
        victim: "claim",
        table: "claim.hold_attempt",
        moment: Moment::Before,
        then: Then::Discard,
    },
    Step {
        what: "inventory, before its commit",
        victim: "inventory",
        table: "inventory.hold_unit",
        moment: Moment::Before,
        then: Then::Discard,
    },
    Step {
        what: "claim, after the note and before the answer of inventory",
        victim: "claim",
        table: "inventory.hold_unit",
        moment: Moment::Before,
        then: Then::LetThrough,
    },
    Step {
        what: "inventory, after its commit and before its answer",
        victim: "inventory",
        table: "inventory.hold_unit",
        moment: Moment::AtCommit,
        then: Then::CommitUnheard,
    },
    Step {
        what: "claim, after the commit of inventory and before its own",
        victim: "claim",
        table: "claim.claim",
        moment: Moment::Before,
        then: Then::Discard,
    },
    Step {
        what: "claim, after its commit and before its answer",
        victim: "claim",
        table: "claim.claim",
        moment: Moment::AtCommit,
        then: Then::CommitUnheard,
    },
];

/// Somebody with a turn, and what they want.
struct Customer {
    person: Person,
    request: CreateClaimRequest,
    seats: [u32; 2],
}

impl Customer {
    async fn ask(&self) -> Result<Claim, tonic::Status> {
        let answer = self.person.claims().create_claim(self.request.clone()).await?;
        Ok(answer.into_inner().claim.unwrap())
    }
}

/// Two customers for each step, each with two seats side by side in mind.
async fn customers(mesh: &Mesh, event: &Event) -> Vec<Customer> {
    let mut arrivals = JoinSet::new();
    for number in 0..u32::try_from(STEPS.len() * 2).unwrap() {
        let (door, event) = (mesh.front_door(), event.clone());
        arrivals.spawn(async move {
            let person = sale::customer(&door).await;
            let buyer = sale::buyer(&door, &person, &event.event_id);
            buyer.join().await.unwrap();
            let turn = buyer.turn(|_| ()).await.unwrap();
            let seats = [number * 2 + 1, number * 2 + 2];
            let sector_id = event.sectors[0].sector_id.clone();
            let request = CreateClaimRequest {
                request_id: sale::new_id(),
                event_id: event.event_id.clone(),
                right: Some(Right::TurnToken(turn.token)),
                selections: vec![UnitSelection { sector_id, count: 0, units: seats.to_vec() }],
            };
            Customer { person, request, seats }
        });
    }
    arrivals.join_all().await
}

/// Whether `table` has a row of the customer's.
async fn is_written(books: &Client, table: &str, customer: &Customer) -> bool {
    let sql = format!("SELECT FROM {table} WHERE customer_id = $1::text::uuid");
    books.query_opt(&sql, &[&customer.person.customer_id]).await.unwrap().is_some()
}

/// Kills the step's victim while it serves the first customer there, and the second too or on the way.
async fn kill_at(mesh: &Mesh, books: &Client, step: &Step, both: [&Customer; 2]) {
    let deaths = mesh.deaths(step.victim);
    let point = FailPoint::set(mesh, step.table, step.moment).await;
    let is_reached = tokio::sync::Notify::new();
    let is_killed = Cell::new(false);
    let asked = async {
        let second = async {
            is_reached.notified().await;
            both[1].ask().await
        };
        let answers = tokio::join!(both[0].ask(), second);
        assert!(is_killed.get(), "{}: answered {answers:?} before it was killed", step.what);
        // What the front door says of a service that is gone is heard by nobody: as if the customers' devices had lost the
        // connection.
        std::future::pending().await
    };
    let killed = async {
        point.reached().await;
        is_reached.notify_one();
        let standing = point.reached_by_another().await;
        if step.then == Then::CommitUnheard {
            mesh.freeze(step.victim);
            point.open().await;
            let table = if step.victim == "claim" { "claim.claim" } else { "inventory.hold" };
            let is_committed = || async { is_written(books, table, both[0]).await };
            wait_until("it is committed", PATIENCE, is_committed).await;
        }
        mesh.kill_only(step.victim);
        is_killed.set(true);
        if step.then == Then::Discard {
            point.discard().await;
        }
        point.remove().await;
        standing
    };
    let standing = tokio::select! { standing = killed => standing, never = asked => never };
    println!("killed {}; {standing} stood there", step.what);
    wait_until("the supervisor starts it again", PATIENCE, || async { mesh.deaths(step.victim) > deaths })
        .await;
    mesh.wait_for(step.victim).await;
}

/// The customer asks again as before, and has what was asked for: once.
async fn assert_served(step: &Step, customer: &Customer) -> Claim {
    let claim = patiently(Deadline::after(ACCOUNTED), || customer.ask()).await;
    let claim = claim.unwrap_or_else(|status| panic!("{}: {status:?}", step.what));
    assert_eq!(claim.state(), ClaimState::Claimed);
    let seats: Vec<u32> = claim.items[0].units.iter().map(|unit| unit.number).collect();
    assert_eq!(seats, customer.seats, "{}", step.what);
    let again = patiently(Deadline::after(ACCOUNTED), || customer.ask()).await.unwrap();
    assert_eq!(again.claim_id, claim.claim_id, "{}", step.what);
    claim
}

/// The seats of claims that are open or paid, by the books of Claim.
async fn claimed(books: &Client, event: &Event) -> BTreeSet<u32> {
    let sql = "SELECT unnest(units) FROM claim.claim_item JOIN claim.claim USING (claim_id)
        WHERE event_id = $1::text::uuid AND state IN ('CLAIMED', 'CONFIRMED')";
    let rows = books.query(sql, &[&event.event_id]).await.unwrap();
    rows.iter().map(|row| u32::try_from(row.get::<_, i32>(0)).unwrap()).collect()
}

/// The seats that are free, as customers see it.
async fn free(person: &Person, event: &Event) -> BTreeSet<u32> {
    let map = sale::availability(person, event).await.remove(0).free_map;
    let is_free = |unit: &u32| {
        let index = usize::try_from(unit - 1).unwrap();
        map[index / 8] & (1 << (index % 8)) != 0
    };
    (1..=event.sectors[0].capacity).filter(is_free).collect()
}

#[tokio::test]
async fn whoever_dies_between_reservation_and_claim_no_unit_is_lost() {
    let mesh = mesh::rough().lock().await;
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::seated(2, 20)]).await;
    let books = fail_point::session(&mesh).await;
    let customers = customers(&mesh, &event).await;
    let (mut served, mut gone) = (Vec::new(), Vec::new());
    for (step, pair) in STEPS.iter().zip(customers.chunks(2)) {
        kill_at(&mesh, &books, step, [&pair[0], &pair[1]]).await;
        served.push((&pair[0], assert_served(step, &pair[0]).await));
        gone.push((step, &pair[1]));
    }
    let last_kill = Instant::now();
    // What came out of it is as good as any other claim.
    for (customer, claim) in &served {
        let buyer = sale::buyer(&door, &customer.person, &event.event_id);
        sale::pay(&buyer, claim).await;
        assert_eq!(buyer.tickets(&claim.claim_id, 2).await.unwrap().len(), 2);
    }

    let all: BTreeSet<u32> = (1..=event.sectors[0].capacity).collect();
    let left = ACCOUNTED.saturating_sub(last_kill.elapsed());
    wait_until("every seat is free or a claim's", left, || async {
        let (claimed, free) = (claimed(&books, &event).await, free(&customers[0].person, &event).await);
        claimed.is_disjoint(&free) && claimed.union(&free).copied().collect::<BTreeSet<_>>() == all
    })
    .await;
    println!("all units are accounted for {:?} after the last kill", last_kill.elapsed());
    let claimed = claimed(&books, &event).await;
    for (step, customer) in gone {
        let has_claim = is_written(&books, "claim.claim", customer).await;
        let seats = customer.seats.iter().filter(|seat| claimed.contains(seat)).count();
        assert_eq!(seats, if has_claim { 2 } else { 0 }, "{}", step.what);
        println!(
            "{}: who did not come back {}",
            step.what,
            if has_claim { "has a claim" } else { "has nothing" }
        );
    }
    mesh.audit().await;
}
