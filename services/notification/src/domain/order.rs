//! One confirmation mail per order, with its items and tickets. These arrive in separate events, in any order and possibly more
//! than once. Tickets that were passed on to another person, or reissued after the confirmation, get a mail of their own.

use onsale_types::{ClaimId, CustomerId, Money, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    content::{Content, Event, Item, Ticket},
    job::{Expiry, NewJob, Recipient},
};

/// Namespace of the subject keys of ticket mails.
const TICKET_MAILS: Uuid = Uuid::from_u128(0xb0c4_6f0d_15a9_4f6a_8f3b_f8d9_2ab0_7714);
/// Maximum number of `ticket.generated` events that wait for one order. Only an order with a hundred transfers before its
/// completion would exceed it.
const WAITING_MAX: usize = 100;

/// Completed order. Stored as JSON while it waits for its tickets: no field may be renamed, and a new one needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Id of the buyer.
    pub(crate) customer_id: CustomerId,
    pub(crate) recipient: Recipient,
    pub(crate) event: Event,
    pub(crate) items: Vec<Item>,
    pub(crate) total: Money,
}

/// Tickets issued to one holder. Stored as JSON while they wait for their order: no field may be renamed, and a new one needs a
/// default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IssuedTickets {
    /// The holder. Without a customer id it is never the buyer.
    pub(crate) recipient: Recipient,
    pub(crate) event: Event,
    /// All tickets of the order, or those that were passed on.
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) issue_time: Timestamp,
}

/// The parts of an order that arrived before its confirmation was complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingOrder {
    pub(crate) order: Option<Order>,
    pub(crate) tickets: Vec<IssuedTickets>,
}

/// Confirmation mail for which a job exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentConfirmation {
    pub(crate) customer_id: Option<CustomerId>,
    pub(crate) tickets: Vec<Ticket>,
}

/// Stored progress of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrderProgress {
    Confirmed(SentConfirmation),
    Waiting(WaitingOrder),
}

/// Event about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrderUpdate {
    Completed(Box<Order>),
    TicketsIssued(Box<IssuedTickets>),
}

/// Consequences of an [`OrderUpdate`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpdatedOrder {
    /// Mails to send now.
    pub(crate) jobs: Vec<NewJob>,
    /// Parts that still wait. `None`: the stored parts are deleted.
    pub(crate) waiting: Option<WaitingOrder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {WAITING_MAX} sets of tickets wait for the order")]
pub(crate) struct TooManyWaiting;

/// Decides which mails to send after `update` of the order `claim_id`, and which of its parts still wait.
pub(crate) fn apply_update(
    claim_id: ClaimId,
    progress: OrderProgress,
    update: OrderUpdate,
) -> Result<UpdatedOrder, TooManyWaiting> {
    let WaitingOrder { mut order, mut tickets } = match progress {
        OrderProgress::Confirmed(sent) => {
            return Ok(UpdatedOrder { jobs: after_confirmation(claim_id, &sent, update), waiting: None });
        }
        OrderProgress::Waiting(waiting) => waiting,
    };
    match update {
        // A repeated event has the same content, so the first one is kept.
        OrderUpdate::Completed(new) => order = order.or(Some(*new)),
        OrderUpdate::TicketsIssued(new) if tickets.contains(&new) => {}
        OrderUpdate::TicketsIssued(new) => tickets.push(*new),
    }
    if tickets.len() > WAITING_MAX {
        return Err(TooManyWaiting);
    }
    if let Some(order) = order {
        return Ok(confirm(claim_id, order, tickets));
    }
    // A holder without a customer id is not the buyer, so these tickets need not wait for the order.
    let (tickets, passed_on): (Vec<_>, Vec<_>) =
        tickets.into_iter().partition(|issued| issued.recipient.customer_id.is_some());
    let jobs = passed_on.into_iter().map(|issued| ticket_mail(claim_id, issued)).collect();
    let waiting = (!tickets.is_empty()).then_some(WaitingOrder { order: None, tickets });
    Ok(UpdatedOrder { jobs, waiting })
}

/// Returns the confirmation if the buyer's tickets have arrived, and a ticket mail for each other set of tickets.
fn confirm(claim_id: ClaimId, order: Order, tickets: Vec<IssuedTickets>) -> UpdatedOrder {
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
        return UpdatedOrder {
            jobs,
            waiting: Some(WaitingOrder { order: Some(order), tickets: Vec::new() }),
        };
    };
    let Order { recipient, event, items, total, .. } = order;
    let content = Content::OrderConfirmation { event, claim_id, items, total, tickets: issued.tickets };
    jobs.insert(0, NewJob::for_subject(claim_id, recipient, content, Expiry::Never));
    UpdatedOrder { jobs, waiting: None }
}

/// Returns true if these are all tickets of the order, issued to its buyer.
fn is_of_buyer(order: &Order, issued: &IssuedTickets) -> bool {
    let unit_count: usize = order.items.iter().map(|item| item.units.len()).sum();
    issued.recipient.customer_id == Some(order.customer_id) && issued.tickets.len() == unit_count
}

/// Returns a ticket mail for tickets of another holder, or with a code that the confirmation did not contain.
fn after_confirmation(claim_id: ClaimId, sent: &SentConfirmation, update: OrderUpdate) -> Vec<NewJob> {
    let is_repeat = |issued: &IssuedTickets| {
        issued.recipient.customer_id.is_some()
            && issued.recipient.customer_id == sent.customer_id
            && issued.tickets.iter().all(|ticket| sent.tickets.contains(ticket))
    };
    match update {
        OrderUpdate::Completed(_) => Vec::new(),
        OrderUpdate::TicketsIssued(issued) if is_repeat(&issued) => Vec::new(),
        OrderUpdate::TicketsIssued(issued) => vec![ticket_mail(claim_id, *issued)],
    }
}

/// Returns a mail with tickets only. Its subject key is derived from order, address, issue time and tickets, so that a repeated
/// event causes no second mail.
fn ticket_mail(claim_id: ClaimId, issued: IssuedTickets) -> NewJob {
    let IssuedTickets { recipient, event, tickets, issue_time } = issued;
    let mut ids: Vec<String> = tickets.iter().map(|ticket| ticket.ticket_id.to_string()).collect();
    ids.sort();
    let subject =
        format!("{claim_id} {} {} {}", recipient.email.as_str(), issue_time.as_micros(), ids.join(" "));
    let subject_key = Uuid::new_v5(&TICKET_MAILS, subject.as_bytes());
    NewJob::for_subject(subject_key, recipient, Content::TicketDelivery { event, tickets }, Expiry::Never)
}

#[cfg(test)]
mod tests;
