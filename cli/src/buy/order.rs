//! One customer's order from sign-in to confirmation mail, reported step by step.

use std::time::Duration;

use onsale_kit::deadline::Deadline;
use onsale_proto::{
    claim::v1::Claim,
    inventory::v1::GetAvailabilityRequest,
    payment::v1::{Payment, PaymentState},
    ticketing::v1::Ticket,
    r#type::v1::UnitSelection,
};
use serde::Deserialize;
use tonic::Status;

use super::purchase::{Buyer, PurchaseError};
use crate::{
    front_door::{FrontDoor, FrontDoorError, Person},
    retry::{backoff, retry_until},
};

/// Units to buy, and the time limit.
#[derive(Clone, Debug)]
pub struct Order {
    /// UUID of the event.
    pub event_id: String,
    /// UUID of the sector. `None`: the sector with most free units.
    pub sector_id: Option<String>,
    /// Number of units.
    pub count: u32,
    /// URL of the mail catcher. `None`: do not wait for the confirmation mail.
    pub mail_url: Option<String>,
    /// Longest time for the whole order.
    pub time_max: Duration,
}

/// A completed step of an order.
#[derive(Debug)]
pub enum PurchaseStep {
    /// The customer is signed in.
    SignedIn(Person),
    /// The customer has an entry in the line.
    Joined {
        /// Number in line.
        seq: u64,
        /// Position in line, from 1; 0: already admitted.
        position: u64,
    },
    /// The position in line changed.
    Moved {
        /// Position in line, from 1.
        position: u64,
    },
    /// The customer was admitted.
    Turn {
        /// Fencing number of the turn.
        fencing_number: u64,
    },
    /// The units are held.
    Claimed(Claim),
    /// The provider's checkout page is open.
    PaymentOpen(Payment),
    /// The payment is confirmed.
    Paid(Payment),
    /// All tickets are issued.
    Ticketed(Vec<Ticket>),
    /// The confirmation mail has arrived.
    Mailed(Mail),
}

/// A mail in the mail catcher, without the fields that are not used here.
#[derive(Clone, Debug, Deserialize)]
pub struct Mail {
    /// Id in the mail catcher.
    pub id: String,
    /// Subject line.
    pub subject: String,
}

/// Response of the mail catcher.
#[derive(Debug, Deserialize)]
struct Mails {
    /// The newest mail first.
    mails: Vec<Mail>,
}

/// Failure of an order.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The sign-in failed.
    #[error(transparent)]
    FrontDoor(#[from] FrontDoorError),
    /// A step of the purchase failed.
    #[error(transparent)]
    Purchase(#[from] PurchaseError),
    /// The mail catcher could not be reached.
    #[error("failed to list mails at {url}")]
    Mail {
        /// URL of the mail catcher.
        url: String,
        /// Error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The confirmation mail did not arrive before the deadline.
    #[error("the confirmation mail did not arrive in time")]
    NoMail,
}

impl OrderError {
    /// Returns true if the order failed because the event is sold out or not on sale.
    #[must_use]
    pub fn is_sold_out(&self) -> bool {
        match self {
            Self::Purchase(error) => error.is_sold_out(),
            Self::FrontDoor(_) | Self::Mail { .. } | Self::NoMail => false,
        }
    }
}

/// Places the order as `email` and pays it. Calls `report` after every step.
pub async fn place_order(
    door: &FrontDoor,
    email: &str,
    order: &Order,
    mut report: impl FnMut(PurchaseStep),
) -> Result<(), OrderError> {
    let deadline = Deadline::after(order.time_max);
    let person = door.sign_in(email, "customer").await?;
    report(PurchaseStep::SignedIn(person.clone()));
    let buyer = Buyer::new(door, &person, &order.event_id, deadline);
    let standing = buyer.join().await?;
    let seq = standing.entry.as_ref().map(|entry| entry.seq).unwrap_or_default();
    report(PurchaseStep::Joined { seq, position: standing.position });
    let turn = match standing.turn {
        Some(turn) => turn,
        None => {
            // Every stream begins with the current position, which is often the last one again.
            let mut last = standing.position;
            let moved = |position| {
                if std::mem::replace(&mut last, position) != position {
                    report(PurchaseStep::Moved { position });
                }
            };
            buyer.wait_for_turn(moved).await?
        }
    };
    report(PurchaseStep::Turn { fencing_number: turn.fencing_number });
    let claim = match claim_where_free(&buyer, &person, order, &turn.token, deadline).await {
        Ok(claim) => claim,
        Err(error) => {
            // The turn is useless now. Leaving gives it to the next customer in line.
            buyer.leave().await?;
            return Err(error.into());
        }
    };
    report(PurchaseStep::Claimed(claim.clone()));
    let payment = buyer.open_payment(&claim.claim_id).await?;
    report(PurchaseStep::PaymentOpen(payment.clone()));
    buyer.act_at_provider(&payment, "pay").await?;
    let payment = buyer.payment_outcome(payment).await?;
    if payment.state() != PaymentState::Confirmed {
        return Err(PurchaseError::PaymentEnded { state: payment.state() }.into());
    }
    report(PurchaseStep::Paid(payment));
    let count = claim.items.iter().map(|item| item.units.len()).sum();
    let mut tickets = buyer.tickets(&claim.claim_id, count).await?;
    tickets.sort_by_key(|ticket| ticket.unit.as_ref().map(|unit| unit.number));
    report(PurchaseStep::Ticketed(tickets));
    if let Some(url) = &order.mail_url {
        report(PurchaseStep::Mailed(wait_for_mail(door, url, email, deadline).await?));
    }
    Ok(())
}

/// Claims in the sector with most free units. If other customers are faster, tries again until no sector has enough units.
async fn claim_where_free(
    buyer: &Buyer,
    person: &Person,
    order: &Order,
    turn_token: &str,
    deadline: Deadline,
) -> Result<Claim, PurchaseError> {
    loop {
        let sector_id = match &order.sector_id {
            Some(sector_id) => sector_id.clone(),
            None => roomiest_sector(person, order, deadline).await?,
        };
        let selection = UnitSelection { sector_id, count: order.count, units: Vec::new() };
        match buyer.claim(turn_token, selection).await {
            Err(error)
                if order.sector_id.is_none() && error.reason().as_deref() == Some("NOT_ENOUGH_UNITS") =>
            {
                // Repeats only while some sector has enough units, so the loop ends when the stock does.
                let (free_max, _) = most_free(person, order, deadline).await?;
                if free_max < order.count || deadline.is_past() {
                    return Err(error);
                }
            }
            answer => return answer,
        }
    }
}

async fn roomiest_sector(
    person: &Person,
    order: &Order,
    deadline: Deadline,
) -> Result<String, PurchaseError> {
    Ok(most_free(person, order, deadline).await?.1)
}

/// Returns the largest number of free units of a sector, and the sector's UUID.
async fn most_free(
    person: &Person,
    order: &Order,
    deadline: Deadline,
) -> Result<(u32, String), PurchaseError> {
    let read = retry_until(deadline, || {
        let mut inventory = person.inventory();
        let request = GetAvailabilityRequest { event_id: order.event_id.clone(), ..Default::default() };
        async move { inventory.get_availability(request).await }
    });
    let failed =
        |status: Status| PurchaseError::Call { step: "reading the availability", status: Box::new(status) };
    let availability = read.await.map_err(failed)?.into_inner().availability.unwrap_or_default();
    let sectors = availability.sectors.into_iter().map(|sector| (sector.free_count, sector.sector_id));
    Ok(sectors.max().unwrap_or_default())
}

/// Waits until there is a mail to `email` and returns the newest one.
pub async fn wait_for_mail(
    door: &FrontDoor,
    url: &str,
    email: &str,
    deadline: Deadline,
) -> Result<Mail, OrderError> {
    let mut waits = backoff();
    loop {
        let failed = |source| OrderError::Mail { url: url.to_owned(), source };
        let request = door.http().get(format!("{url}/api/mails")).query(&[("to", email)]);
        let found = async { request.send().await?.error_for_status()?.json::<Mails>().await };
        if let Some(mail) = found.await.map_err(failed)?.mails.into_iter().next() {
            return Ok(mail);
        }
        let wait = waits.next_delay().filter(|_| !deadline.is_past()).ok_or(OrderError::NoMail)?;
        tokio::time::sleep(wait).await;
    }
}
