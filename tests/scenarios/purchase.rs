//! Purchases by gRPC and by `onsale buy`.

use onsale_kit::deadline::Deadline;
use onsale_proto::{
    claim::v1::{ClaimState, GetClaimRequest},
    ticketing::v1::{GetTicketRequest, TicketState},
};

use super::support::{TIMEOUT, mesh, sale};

#[tokio::test]
async fn customer_buys_two_tickets_and_gets_one_mail() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10), sale::seated(2, 5)]).await;
    let person = sale::customer(&door).await;
    let buyer = sale::buyer(&door, &person, &event.event_id);

    let (claim, _, tickets) = sale::purchase(&buyer, &event.sectors[1], 2).await;

    assert_eq!(claim.total.clone().unwrap().amount_minor, 2 * 8_900);
    assert_eq!(claim.items[0].group_count, 1, "two seats of an empty row are adjacent");
    assert_eq!(tickets.len(), 2);
    assert!(tickets.iter().all(|ticket| ticket.state() == TicketState::Issued && !ticket.code.is_empty()));
    assert_ne!(tickets[0].code, tickets[1].code);
    let bought: Vec<_> = claim.items[0].units.iter().map(|unit| unit.number).collect();
    let mut issued: Vec<_> = tickets.iter().map(|ticket| ticket.unit.clone().unwrap().number).collect();
    issued.sort_unstable();
    assert_eq!(issued, bought, "the tickets are for the claimed units");

    let request = GetClaimRequest { claim_id: claim.claim_id.clone() };
    let claim = person.claims().get_claim(request).await.unwrap().into_inner().claim.unwrap();
    assert_eq!(claim.state(), ClaimState::Confirmed);
    let request = GetTicketRequest { ticket_id: tickets[0].ticket_id.clone(), document_kinds: vec![] };
    let ticket = person.tickets().get_ticket(request).await.unwrap().into_inner().ticket.unwrap();
    assert_eq!(ticket.code, tickets[0].code);

    let deadline = Deadline::after(TIMEOUT);
    let mail =
        onsale::buy::order::wait_for_mail(&door, mesh.mail_url(), &person.email, deadline).await.unwrap();
    assert!(mail.subject.contains("Scenario"), "{}", mail.subject);
    mesh.audit().await;
    assert_eq!(mesh.mails_to(&person.email).await, 1, "an order sends one mail");
}

#[tokio::test]
async fn onsale_buy_buys_for_a_crowd() {
    let mesh = mesh::shared();
    let (_, event) = sale::on_sale(&mesh.front_door(), vec![sale::general(40)]).await;
    let output = mesh.onsale(&["buy", "--customers", "12", "--event", &event.event_id]).await;
    assert!(output.contains("bought     12 (24 tickets)"), "{output}");
    let output = mesh.onsale(&["buy", "--event", &event.event_id]).await;
    for step in ["signed in", "joined the queue", "admitted", "claimed", "paid", "2 tickets issued", "mail: "]
    {
        assert!(output.contains(step), "{step} is missing in:\n{output}");
    }
    mesh.audit().await;
}
