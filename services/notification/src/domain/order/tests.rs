//! In any order of events, with any repeats: one confirmation per order, and every ticket reaches its holder.

use onsale_types::{Currency, EventId, TicketId};
use proptest::prelude::*;

use super::*;
use crate::domain::{
    content::{Template, Unit},
    language::Language,
    text::EmailAddress,
};

struct Sale {
    claim_id: ClaimId,
    order: Order,
    of_buyer: IssuedTickets,
    passed_on: IssuedTickets,
    new_code: IssuedTickets,
}

fn recipient(customer_id: Option<CustomerId>, email: &str) -> Recipient {
    Recipient { customer_id, email: EmailAddress::parse(email).unwrap(), language: Language::En }
}

fn sale() -> Sale {
    let customer_id = CustomerId::generate();
    let unit = |number| Unit { number, seat: None };
    let event = Event {
        event_id: EventId::generate(),
        name: "Concert".to_owned(),
        venue_name: "Arena".to_owned(),
        venue_address: None,
        time_zone: "Europe/Zagreb".to_owned(),
        start_time: Timestamp::from_secs(1),
    };
    let price = Money::new(1_000, Currency::parse("EUR").unwrap());
    let items = vec![Item {
        sector_name: "Floor".to_owned(),
        units: vec![unit(1), unit(2)],
        unit_price: price,
        amount: price.checked_mul(2).unwrap(),
    }];
    let ticket = |number: u32, code: &str| Ticket {
        ticket_id: TicketId::generate(),
        sector_name: "Floor".to_owned(),
        unit: unit(number),
        code: code.to_owned(),
    };
    let issued = |recipient, tickets, seconds| IssuedTickets {
        recipient,
        event: event.clone(),
        tickets,
        issue_time: Timestamp::from_secs(seconds),
    };
    let buyer = recipient(Some(customer_id), "ana@example.com");
    let tickets = vec![ticket(1, "one"), ticket(2, "two")];
    Sale {
        claim_id: ClaimId::generate(),
        of_buyer: issued(buyer.clone(), tickets.clone(), 1),
        // The code is the one that the buyer had: only the recipient differs.
        passed_on: issued(recipient(None, "iva@example.com"), tickets[1..].to_vec(), 2),
        new_code: issued(buyer.clone(), vec![ticket(2, "three")], 3),
        order: Order { customer_id, recipient: buyer, event, items, total: price.checked_mul(2).unwrap() },
    }
}

/// Applies the updates one after the other. Keeps jobs by their id, as the store does.
fn apply_all(claim_id: ClaimId, updates: Vec<OrderUpdate>) -> (Vec<NewJob>, Option<WaitingOrder>) {
    let mut jobs: Vec<NewJob> = Vec::new();
    let mut waiting = None;
    for update in updates {
        let sent = jobs.iter().find_map(|job| match &job.content {
            Content::OrderConfirmation { tickets, .. } => {
                Some(SentConfirmation { customer_id: job.recipient.customer_id, tickets: tickets.clone() })
            }
            _ => None,
        });
        let progress = match sent {
            Some(sent) => OrderProgress::Confirmed(sent),
            None => OrderProgress::Waiting(waiting.take().unwrap_or_default()),
        };
        let updated = apply_update(claim_id, progress, update).unwrap();
        for job in updated.jobs {
            if jobs.iter().all(|it| it.job_id != job.job_id) {
                jobs.push(job);
            }
        }
        waiting = updated.waiting;
    }
    (jobs, waiting)
}

#[test]
fn order_without_tickets_and_tickets_without_order_wait() {
    let sale = sale();
    let (jobs, waiting) = apply_all(sale.claim_id, vec![OrderUpdate::Completed(Box::new(sale.order))]);
    assert!(jobs.is_empty() && waiting.is_some());
    let (jobs, waiting) = apply_all(sale.claim_id, vec![OrderUpdate::TicketsIssued(Box::new(sale.of_buyer))]);
    assert!(jobs.is_empty() && waiting.is_some());
}

#[test]
fn ticket_for_a_bare_address_does_not_wait_for_the_order() {
    let sale = sale();
    let (jobs, waiting) =
        apply_all(sale.claim_id, vec![OrderUpdate::TicketsIssued(Box::new(sale.passed_on))]);
    assert_eq!(jobs.len(), 1);
    assert_eq!(waiting, None);
}

#[test]
fn too_many_waiting_tickets_are_refused() {
    let sale = sale();
    let tickets = (0..=WAITING_MAX)
        .map(|index| IssuedTickets {
            issue_time: Timestamp::from_micros(i64::try_from(index).unwrap()),
            ..sale.of_buyer.clone()
        })
        .collect();
    let progress = OrderProgress::Waiting(WaitingOrder { order: None, tickets });
    assert_eq!(
        apply_update(sale.claim_id, progress, OrderUpdate::TicketsIssued(Box::new(sale.new_code))),
        Err(TooManyWaiting)
    );
}

proptest! {
    #[test]
    fn any_order_of_events_makes_one_confirmation_and_two_ticket_mails(
        picks in prop::collection::vec(0_usize..4, 0..12),
        rest in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
    ) {
        let sale = sale();
        let updates = [
            OrderUpdate::Completed(Box::new(sale.order)),
            OrderUpdate::TicketsIssued(Box::new(sale.of_buyer.clone())),
            OrderUpdate::TicketsIssued(Box::new(sale.passed_on)),
            OrderUpdate::TicketsIssued(Box::new(sale.new_code)),
        ];
        let shuffled = picks.iter().chain(&rest).map(|index| updates[*index].clone()).collect();
        let (jobs, waiting) = apply_all(sale.claim_id, shuffled);
        prop_assert_eq!(waiting, None);
        let confirmations: Vec<_> =
            jobs.iter().filter(|job| job.content.template() == Template::OrderConfirmation).collect();
        prop_assert_eq!(confirmations.len(), 1);
        let Content::OrderConfirmation { tickets, .. } = &confirmations[0].content else { unreachable!() };
        prop_assert_eq!(tickets, &sale.of_buyer.tickets);
        prop_assert_eq!(jobs.len(), 3);
    }
}
