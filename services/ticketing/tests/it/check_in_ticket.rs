//! `CheckInTicket`: a ticket admits once, and later scans return the time and gate of the first.

use onsale_proto::{
    auth::v1::Role,
    events::v1::EventActivated,
    ticketing::v1::{self as pb, CheckInOutcome, TicketState},
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::support::{Person, TestEvent, World, reason};

/// An event with one sold ticket, its organizer, staff and buyer.
struct Gate {
    world: World,
    event: TestEvent,
    organizer: Person,
    staff: Person,
    buyer: Person,
    ticket: pb::Ticket,
}

impl Gate {
    async fn new() -> Self {
        let mut world = World::new().await;
        let organizer = world.person(Role::Organizer);
        let (staff, buyer) = (world.person(Role::Staff), world.person(Role::Customer));
        let event = world.generated(&organizer, &[5]).await;
        let order = event.order(&buyer, &[1]);
        world.publish_order(&order).await;
        let ticket = world.issued(&order, &buyer).await.remove(0);
        Self { world, event, organizer, staff, buyer, ticket }
    }

    fn scan(&self, gate: &str) -> pb::CheckInTicketRequest {
        pb::CheckInTicketRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: self.event.id().to_owned(),
            code: self.ticket.code.clone(),
            gate: gate.to_owned(),
            scan_time: None,
        }
    }

    async fn check_in(
        &self,
        person: &Person,
        scan: pb::CheckInTicketRequest,
    ) -> Result<pb::CheckInTicketResponse, Status> {
        Ok(self.world.tickets().check_in_ticket(person.request(scan)).await?.into_inner())
    }
}

#[tokio::test]
async fn ticket_admits_once_and_a_repeated_request_gets_the_same_answer() {
    let gate = Gate::new().await;
    let scan = gate.scan("Gate 3");
    let first = gate.check_in(&gate.staff, scan.clone()).await.unwrap();
    assert_eq!(first.outcome(), CheckInOutcome::Admitted);
    let ticket = first.ticket.clone().unwrap();
    assert_eq!((ticket.state(), ticket.code.as_str()), (TicketState::CheckedIn, ""));
    assert_eq!(ticket.check_in, first.first_check_in);
    assert_eq!(first.first_check_in.as_ref().unwrap().gate, "Gate 3");
    assert_eq!(gate.check_in(&gate.staff, scan).await.unwrap(), first, "the request is repeated");

    let second = gate.check_in(&gate.staff, gate.scan("Gate 7")).await.unwrap();
    assert_eq!(second.outcome(), CheckInOutcome::AlreadyCheckedIn);
    assert_eq!(second.first_check_in, first.first_check_in, "time and gate of the first check-in");
    let listed = gate.world.list(&gate.buyer, pb::ListTicketsRequest::default()).await.unwrap().tickets;
    assert_eq!((listed[0].state(), listed[0].code.as_str()), (TicketState::CheckedIn, ""));
}

#[tokio::test]
async fn one_of_many_concurrent_scans_is_admitted() {
    let gate = Gate::new().await;
    let scans = (0..10).map(|number| gate.check_in(&gate.staff, gate.scan(&format!("Gate {number}"))));
    let answers: Vec<_> =
        futures_util::future::join_all(scans).await.into_iter().map(|answer| answer.unwrap()).collect();
    let admitted = answers.iter().filter(|answer| answer.outcome() == CheckInOutcome::Admitted);
    assert_eq!(admitted.count(), 1);
    assert!(answers.iter().all(|answer| answer.first_check_in == answers[0].first_check_in));
}

#[tokio::test]
async fn ticket_of_another_event_is_refused_and_not_shown() {
    let mut gate = Gate::new().await;
    let other = gate.world.generated(&gate.organizer, &[1]).await;
    let scan = pb::CheckInTicketRequest { event_id: other.id().to_owned(), ..gate.scan("Gate 1") };
    let answer = gate.check_in(&gate.staff, scan).await.unwrap();
    assert_eq!((answer.outcome(), answer.ticket), (CheckInOutcome::WrongEvent, None));
}

#[tokio::test]
async fn foreign_code_is_invalid_and_an_old_code_is_replaced() {
    let gate = Gate::new().await;
    let mut damaged = gate.ticket.code.clone();
    let last = if damaged.pop() == Some('A') { 'Q' } else { 'A' };
    damaged.push(last);
    for code in [damaged, "nonsense".to_owned(), gate.ticket.ticket_id.clone()] {
        let scan = pb::CheckInTicketRequest { code, ..gate.scan("Gate 1") };
        let refused = gate.check_in(&gate.staff, scan).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::InvalidArgument, "TICKET_CODE_INVALID")
        );
    }
    // A transfer will replace the code like this.
    gate.world.store.execute("replace", "UPDATE ticket SET code = 'new' WHERE unit = 1", &[]).await.unwrap();
    let answer = gate.check_in(&gate.staff, gate.scan("Gate 1")).await.unwrap();
    assert_eq!(answer.outcome(), CheckInOutcome::CodeReplaced);
}

#[tokio::test]
async fn organizers_check_in_at_their_own_events_only() {
    let mut gate = Gate::new().await;
    let other = gate.world.person(Role::Organizer);
    let refused = gate.check_in(&other, gate.scan("Gate 1")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "EVENT_NOT_FOUND"));
    let activate_time = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 });
    let event_id = gate.event.id().to_owned();
    let activated =
        EventActivated { event_id: event_id.clone(), revision: 2, on_sale_time: None, activate_time };
    gate.world.publish(&event_id, &activated).await;
    gate.world.wait_until_handled(3).await;
    let refused = gate.check_in(&other, gate.scan("Gate 1")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "EVENT_NOT_OWNED"));
    let unknown = pb::CheckInTicketRequest { event_id: Uuid::now_v7().to_string(), ..gate.scan("Gate 1") };
    let refused = gate.check_in(&gate.staff, unknown).await.unwrap_err();
    assert_eq!(reason(&refused), "EVENT_NOT_FOUND");
    let own = gate.check_in(&gate.organizer, gate.scan("Gate 1")).await.unwrap();
    assert_eq!(own.outcome(), CheckInOutcome::Admitted);
}

#[tokio::test]
async fn offline_scan_keeps_its_time_and_a_future_time_is_refused() {
    let gate = Gate::new().await;
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let future =
        pb::CheckInTicketRequest { scan_time: at(4_000_000_000), gate: String::new(), ..gate.scan("") };
    let refused = gate.check_in(&gate.staff, future).await.unwrap_err();
    assert_eq!(reason(&refused), "FIELDS_INVALID");
    let past = pb::CheckInTicketRequest { scan_time: at(1_700_000_000), ..gate.scan("Gate 1") };
    let answer = gate.check_in(&gate.staff, past).await.unwrap();
    assert_eq!(answer.first_check_in.unwrap().check_in_time, at(1_700_000_000));
}
