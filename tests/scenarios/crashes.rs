//! Claim and Inventory are killed at each point between the reservation and the claim. Customers who retry get their claim,
//! units of customers who do not retry are free or claimed within 30 s, and `onsale audit` finds no violation.

use std::{
    cell::Cell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use onsale::{front_door::Person, retry::retry_until};
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
    TIMEOUT,
    fail_point::{self, FailPoint, StopAt},
    mesh::{self, Mesh},
    sale,
};

/// Time within which every unit is free or belongs to a claim.
const ACCOUNTED_WITHIN: Duration = Duration::from_secs(30);

/// Point at which a process is killed.
struct CrashPoint {
    what: &'static str,
    process: &'static str,
    table: &'static str,
    stop_at: StopAt,
    /// Fate of the blocked database session.
    after_kill: AfterKill,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterKill {
    /// The session ends with the process and its transaction rolls back.
    EndSession,
    /// The session belongs to another process and continues.
    Continue,
    /// The session commits while the process is frozen; the process is then killed before it receives the result.
    CommitFirst,
}

const CRASH_POINTS: [CrashPoint; 6] = [
    CrashPoint {
        what: "claim, before it records the attempt",
        process: "claim",
        table: "claim.hold_attempt",
        stop_at: StopAt::Insert,
        after_kill: AfterKill::EndSession,
    },
    CrashPoint {
        what: "inventory, before its commit",
        process: "inventory",
        table: "inventory.hold_unit",
        stop_at: StopAt::Insert,
        after_kill: AfterKill::EndSession,
    },
    CrashPoint {
        what: "claim, after it recorded the attempt and before inventory responds",
        process: "claim",
        table: "inventory.hold_unit",
        stop_at: StopAt::Insert,
        after_kill: AfterKill::Continue,
    },
    CrashPoint {
        what: "inventory, after its commit and before its response",
        process: "inventory",
        table: "inventory.hold_unit",
        stop_at: StopAt::Commit,
        after_kill: AfterKill::CommitFirst,
    },
    CrashPoint {
        what: "claim, after the commit of inventory and before its own",
        process: "claim",
        table: "claim.claim",
        stop_at: StopAt::Insert,
        after_kill: AfterKill::EndSession,
    },
    CrashPoint {
        what: "claim, after its commit and before its response",
        process: "claim",
        table: "claim.claim",
        stop_at: StopAt::Commit,
        after_kill: AfterKill::CommitFirst,
    },
];

/// A customer with a turn and the claim request of that customer.
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

/// Signs in two customers for each crash point, lets them wait for their turn, and gives each a request for two adjacent seats.
async fn customers(mesh: &Mesh, event: &Event) -> Vec<Customer> {
    let mut arrivals = JoinSet::new();
    for number in 0..u32::try_from(CRASH_POINTS.len() * 2).unwrap() {
        let (door, event) = (mesh.front_door(), event.clone());
        arrivals.spawn(async move {
            let person = sale::customer(&door).await;
            let buyer = sale::buyer(&door, &person, &event.event_id);
            buyer.join().await.unwrap();
            let turn = buyer.wait_for_turn(|_| ()).await.unwrap();
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

/// Returns true if `table` has a row of the customer.
async fn is_written(database: &Client, table: &str, customer: &Customer) -> bool {
    let sql = format!("SELECT FROM {table} WHERE customer_id = $1::text::uuid");
    database.query_opt(&sql, &[&customer.person.customer_id]).await.unwrap().is_some()
}

/// Kills the process of the crash point while it handles the request of the first customer at that point. The request of the
/// second customer is blocked there too, or is still on its way.
async fn kill_at(mesh: &Mesh, database: &Client, point: &CrashPoint, both: [&Customer; 2]) {
    let restarts = mesh.restarts(point.process);
    let fail_point = FailPoint::set(mesh, point.table, point.stop_at).await;
    let is_reached = tokio::sync::Notify::new();
    let is_killed = Cell::new(false);
    let asked = async {
        let second = async {
            is_reached.notified().await;
            both[1].ask().await
        };
        let answers = tokio::join!(both[0].ask(), second);
        assert!(is_killed.get(), "{}: returned {answers:?} before the kill", point.what);
        // Ignore the responses of the front door after the kill, as if the customers' devices had lost the connection.
        std::future::pending().await
    };
    let killed = async {
        fail_point.wait_until_reached().await;
        is_reached.notify_one();
        let blocked_count = fail_point.blocked_after_second().await;
        if point.after_kill == AfterKill::CommitFirst {
            mesh.freeze(point.process);
            fail_point.release().await;
            let table = if point.process == "claim" { "claim.claim" } else { "inventory.hold" };
            let is_committed = || async { is_written(database, table, both[0]).await };
            wait_until("the session has committed", TIMEOUT, is_committed).await;
        }
        mesh.kill(point.process);
        is_killed.set(true);
        if point.after_kill == AfterKill::EndSession {
            fail_point.end_sessions().await;
        }
        fail_point.remove().await;
        blocked_count
    };
    let blocked_count = tokio::select! { count = killed => count, never = asked => never };
    println!("killed {} with {blocked_count} blocked sessions", point.what);
    wait_until("the supervisor restarts the process", TIMEOUT, || async {
        mesh.restarts(point.process) > restarts
    })
    .await;
    mesh.wait_for(point.process).await;
}

/// Retries the request and asserts that it returns the requested seats, and the same claim on a further repeat.
async fn assert_served(point: &CrashPoint, customer: &Customer) -> Claim {
    let claim = retry_until(Deadline::after(ACCOUNTED_WITHIN), || customer.ask()).await;
    let claim = claim.unwrap_or_else(|status| panic!("{}: {status:?}", point.what));
    assert_eq!(claim.state(), ClaimState::Claimed);
    let seats: Vec<u32> = claim.items[0].units.iter().map(|unit| unit.number).collect();
    assert_eq!(seats, customer.seats, "{}", point.what);
    let again = retry_until(Deadline::after(ACCOUNTED_WITHIN), || customer.ask()).await.unwrap();
    assert_eq!(again.claim_id, claim.claim_id, "{}", point.what);
    claim
}

/// Returns the seats of open and confirmed claims, from the database of Claim.
async fn claimed(database: &Client, event: &Event) -> BTreeSet<u32> {
    let sql = "SELECT unnest(units) FROM claim.claim_item JOIN claim.claim USING (claim_id)
        WHERE event_id = $1::text::uuid AND state IN ('CLAIMED', 'CONFIRMED')";
    let rows = database.query(sql, &[&event.event_id]).await.unwrap();
    rows.iter().map(|row| u32::try_from(row.get::<_, i32>(0)).unwrap()).collect()
}

/// Returns the free seats that Inventory reports to customers.
async fn free(person: &Person, event: &Event) -> BTreeSet<u32> {
    let map = sale::availability(person, event).await.remove(0).free_map;
    let is_free = |unit: &u32| {
        let index = usize::try_from(unit - 1).unwrap();
        map[index / 8] & (1 << (index % 8)) != 0
    };
    (1..=event.sectors[0].capacity).filter(is_free).collect()
}

#[tokio::test]
async fn crashes_between_reservation_and_claim_lose_no_unit() {
    let mesh = mesh::exclusive().lock().await;
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::seated(2, 20)]).await;
    let database = fail_point::session(&mesh).await;
    let customers = customers(&mesh, &event).await;
    let (mut served, mut not_retried) = (Vec::new(), Vec::new());
    for (point, pair) in CRASH_POINTS.iter().zip(customers.chunks(2)) {
        kill_at(&mesh, &database, point, [&pair[0], &pair[1]]).await;
        served.push((&pair[0], assert_served(point, &pair[0]).await));
        not_retried.push((point, &pair[1]));
    }
    let last_kill = Instant::now();
    // The claims are as usable as any other claim.
    for (customer, claim) in &served {
        let buyer = sale::buyer(&door, &customer.person, &event.event_id);
        sale::pay(&buyer, claim).await;
        assert_eq!(buyer.tickets(&claim.claim_id, 2).await.unwrap().len(), 2);
    }

    let all: BTreeSet<u32> = (1..=event.sectors[0].capacity).collect();
    let left = ACCOUNTED_WITHIN.saturating_sub(last_kill.elapsed());
    wait_until("every seat is free or claimed", left, || async {
        let (claimed, free) = (claimed(&database, &event).await, free(&customers[0].person, &event).await);
        claimed.is_disjoint(&free) && claimed.union(&free).copied().collect::<BTreeSet<_>>() == all
    })
    .await;
    println!("all units are accounted for {:?} after the last kill", last_kill.elapsed());
    let claimed = claimed(&database, &event).await;
    for (point, customer) in not_retried {
        let has_claim = is_written(&database, "claim.claim", customer).await;
        let seats = customer.seats.iter().filter(|seat| claimed.contains(seat)).count();
        assert_eq!(seats, if has_claim { 2 } else { 0 }, "{}", point.what);
        println!(
            "{}: the customer who did not retry {}",
            point.what,
            if has_claim { "has a claim" } else { "has no claim" }
        );
    }
    mesh.audit().await;
}
