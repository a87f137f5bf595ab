//! One mail per order. What was bought and the tickets for it arrive apart, in any order and more than once; the mail has
//! both. Tickets that went to somebody else, or that are new ones for an order already told, have a mail of their own.

use onsale_types::{ClaimId, CustomerId, Money, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    content::{Content, Event, Item, Ticket},
    job::{Expiry, NewJob, Recipient},
};

/// The namespace of what ticket mails are about.
const TICKET_MAILS: Uuid = Uuid::from_u128(0xb0c4_6f0d_15a9_4f6a_8f3b_f8d9_2ab0_7714);
/// More tickets than this are never kept waiting for one order: it would have been transferred a hundred times before it
/// was completed.
const WAITING_MAX: usize = 100;

/// What was bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The buyer.
    pub customer_id: CustomerId,
    /// Where to tell them.
    pub recipient: Recipient,
    /// The event.
    pub event: Event,
    /// What was bought.
    pub items: Vec<Item>,
    /// What was paid.
    pub total: Money,
}

/// Tickets on their way to a holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedTickets {
    /// To whom. Somebody without a customer id is never the buyer.
    pub recipient: Recipient,
    /// The event.
    pub event: Event,
    /// All of the order, or those that were passed on.
    pub tickets: Vec<Ticket>,
    /// When.
    pub issue_time: Timestamp,
}

/// What is known of an order before its mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// What was bought.
    pub order: Option<Order>,
    /// Tickets that came before it.
    pub tickets: Vec<IssuedTickets>,
}

/// What an order's mail said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// To whom.
    pub customer_id: Option<CustomerId>,
    /// With these tickets.
    pub tickets: Vec<Ticket>,
}

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its mail exists.
    Told(Told),
    /// It waits.
    Waiting(Waiting),
}

/// What was heard about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// It was completed.
    Completed(Box<Order>),
    /// Tickets were issued.
    Issued(Box<IssuedTickets>),
}

/// What follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Mails to send now.
    pub jobs: Vec<NewJob>,
    /// What goes on waiting; none when nothing does.
    pub waiting: Option<Waiting>,
}

/// Too many tickets came before their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {WAITING_MAX} sets of tickets wait for the order")]
pub struct TooManyWaiting;

/// Decides what to send, now that `fact` is known of the order `claim_id`.
pub fn settle(claim_id: ClaimId, known: Known, fact: Fact) -> Result<Settled, TooManyWaiting> {
    let Waiting { mut order, mut tickets } = match known {
        Known::Told(told) => return Ok(Settled { jobs: after_told(claim_id, &told, fact), waiting: None }),
        Known::Waiting(waiting) => waiting,
    };
    match fact {
        // The first counts: a repeat says the same.
        Fact::Completed(new) => order = order.or(Some(*new)),
        Fact::Issued(new) if tickets.contains(&new) => {}
        Fact::Issued(new) => tickets.push(*new),
    }
    if tickets.len() > WAITING_MAX {
        return Err(TooManyWaiting);
    }
    if let Some(order) = order {
        return Ok(join(claim_id, order, tickets));
    }
    // Whoever we know by address only is not the buyer, whatever was bought.
    let (tickets, passed_on): (Vec<_>, Vec<_>) =
        tickets.into_iter().partition(|issued| issued.recipient.customer_id.is_some());
    let jobs = passed_on.into_iter().map(|issued| ticket_mail(claim_id, issued)).collect();
    let waiting = (!tickets.is_empty()).then_some(Waiting { order: None, tickets });
    Ok(Settled { jobs, waiting })
}

/// The order is known: its tickets go with it, others by themselves.
fn join(claim_id: ClaimId, order: Order, tickets: Vec<IssuedTickets>) -> Settled {
    let mut of_buyer = None;
    let mut jobs = Vec::new();
    for issued in tickets {
        if of_buyer.is_none() && is_of_buyer(&order, &issued) {
            of_buyer = Some(issued);
        } else {
            jobs.push(ticket_mail(claim_id, issued));
        }
    }
    let Some(issued) = of_buyer else {
        return Settled { jobs, waiting: Some(Waiting { order: Some(order), tickets: Vec::new() }) };
    };
    let Order { recipient, event, items, total, .. } = order;
    let content = Content::OrderConfirmation { event, claim_id, items, total, tickets: issued.tickets };
    jobs.insert(0, NewJob::about(claim_id, recipient, content, Expiry::Never));
    Settled { jobs, waiting: None }
}

/// Whether these are the order's own tickets: all of them, to the buyer.
fn is_of_buyer(order: &Order, issued: &IssuedTickets) -> bool {
    let bought: usize = order.items.iter().map(|item| item.places.len()).sum();
    issued.recipient.customer_id == Some(order.customer_id) && issued.tickets.len() == bought
}

/// The order was told: only tickets for somebody else, or with codes that were not in that mail, are worth another.
fn after_told(claim_id: ClaimId, told: &Told, fact: Fact) -> Vec<NewJob> {
    let is_repeat = |issued: &IssuedTickets| {
        issued.recipient.customer_id.is_some()
            && issued.recipient.customer_id == told.customer_id
            && issued.tickets.iter().all(|ticket| told.tickets.contains(ticket))
    };
    match fact {
        Fact::Completed(_) => Vec::new(),
        Fact::Issued(issued) if is_repeat(&issued) => Vec::new(),
        Fact::Issued(issued) => vec![ticket_mail(claim_id, *issued)],
    }
}

/// A mail with tickets alone. The same tickets to the same address at the same time are one mail.
fn ticket_mail(claim_id: ClaimId, issued: IssuedTickets) -> NewJob {
    let IssuedTickets { recipient, event, tickets, issue_time } = issued;
    let mut ids: Vec<String> = tickets.iter().map(|ticket| ticket.ticket_id.to_string()).collect();
    ids.sort();
    let about =
        format!("{claim_id} {} {} {}", recipient.email.as_str(), issue_time.as_micros(), ids.join(" "));
    let subject_key = Uuid::new_v5(&TICKET_MAILS, about.as_bytes());
    NewJob::about(subject_key, recipient, Content::TicketDelivery { event, tickets }, Expiry::Never)
}

#[cfg(test)]
mod tests;
