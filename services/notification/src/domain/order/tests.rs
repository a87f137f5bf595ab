//! Whatever comes first, and however often: one mail per order, and every ticket reaches its holder.

use onsale_types::{Currency, EventId, TicketId};
use proptest::prelude::*;

use super::*;
use crate::domain::{
    content::{Place, Template},
    language::Language,
    text::EmailAddress,
};

struct World {
    claim_id: ClaimId,
    order: Order,
    of_buyer: IssuedTickets,
    passed_on: IssuedTickets,
    new_code: IssuedTickets,
}

fn recipient(customer_id: Option<CustomerId>, email: &str) -> Recipient {
    Recipient { customer_id, email: EmailAddress::parse(email).unwrap(), language: Language::En }
}

fn world() -> World {
    let customer_id = CustomerId::generate();
    let place = |number| Place { number, seat: None };
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
        places: vec![place(1), place(2)],
        unit_price: price,
        amount: price.checked_mul(2).unwrap(),
    }];
    let ticket = |number: u32, code: &str| Ticket {
        ticket_id: TicketId::generate(),
        sector_name: "Floor".to_owned(),
        place: place(number),
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
    World {
        claim_id: ClaimId::generate(),
        of_buyer: issued(buyer.clone(), tickets.clone(), 1),
        // With the very code the buyer had: it is the address that makes it another's.
        passed_on: issued(recipient(None, "iva@example.com"), tickets[1..].to_vec(), 2),
        new_code: issued(buyer.clone(), vec![ticket(2, "three")], 3),
        order: Order { customer_id, recipient: buyer, event, items, total: price.checked_mul(2).unwrap() },
    }
}

/// Plays the store: applies facts one after the other and remembers jobs by what they are about.
fn play(claim_id: ClaimId, facts: Vec<Fact>) -> (Vec<NewJob>, Option<Waiting>) {
    let mut jobs: Vec<NewJob> = Vec::new();
    let mut waiting = None;
    for fact in facts {
        let told = jobs.iter().find_map(|job| match &job.content {
            Content::OrderConfirmation { tickets, .. } => {
                Some(Told { customer_id: job.recipient.customer_id, tickets: tickets.clone() })
            }
            _ => None,
        });
        let known = match told {
            Some(told) => Known::Told(told),
            None => Known::Waiting(waiting.take().unwrap_or_default()),
        };
        let settled = settle(claim_id, known, fact).unwrap();
        for job in settled.jobs {
            if jobs.iter().all(|it| it.job_id != job.job_id) {
                jobs.push(job);
            }
        }
        waiting = settled.waiting;
    }
    (jobs, waiting)
}

#[test]
fn half_an_order_waits() {
    let world = world();
    let (jobs, waiting) = play(world.claim_id, vec![Fact::Completed(Box::new(world.order))]);
    assert!(jobs.is_empty() && waiting.is_some());
    let (jobs, waiting) = play(world.claim_id, vec![Fact::Issued(Box::new(world.of_buyer))]);
    assert!(jobs.is_empty() && waiting.is_some());
}

#[test]
fn a_ticket_for_an_address_does_not_wait_for_the_order() {
    let world = world();
    let (jobs, waiting) = play(world.claim_id, vec![Fact::Issued(Box::new(world.passed_on))]);
    assert_eq!(jobs.len(), 1);
    assert_eq!(waiting, None);
}

#[test]
fn tickets_do_not_wait_without_end() {
    let world = world();
    let tickets = (0..=WAITING_MAX)
        .map(|index| IssuedTickets {
            issue_time: Timestamp::from_micros(i64::try_from(index).unwrap()),
            ..world.of_buyer.clone()
        })
        .collect();
    let known = Known::Waiting(Waiting { order: None, tickets });
    assert_eq!(settle(world.claim_id, known, Fact::Issued(Box::new(world.new_code))), Err(TooManyWaiting));
}

proptest! {
    #[test]
    fn in_any_order_and_with_repeats_there_is_one_confirmation_and_one_mail_per_passed_ticket(
        picks in prop::collection::vec(0_usize..4, 0..12),
        rest in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
    ) {
        let world = world();
        let facts = [
            Fact::Completed(Box::new(world.order)),
            Fact::Issued(Box::new(world.of_buyer.clone())),
            Fact::Issued(Box::new(world.passed_on)),
            Fact::Issued(Box::new(world.new_code)),
        ];
        let played = picks.iter().chain(&rest).map(|index| facts[*index].clone()).collect();
        let (jobs, waiting) = play(world.claim_id, played);
        prop_assert_eq!(waiting, None);
        let confirmations: Vec<_> =
            jobs.iter().filter(|job| job.content.template() == Template::OrderConfirmation).collect();
        prop_assert_eq!(confirmations.len(), 1);
        let Content::OrderConfirmation { tickets, .. } = &confirmations[0].content else { unreachable!() };
        prop_assert_eq!(tickets, &world.of_buyer.tickets);
        prop_assert_eq!(jobs.len(), 3);
    }
}
