//! What one customer does from signing in to the mail, told step by step.

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

/// What to buy, and how patient to be.
#[derive(Clone, Debug)]
pub struct Order {
    /// Of which event.
    pub event_id: String,
    /// Only in this sector. None: where there is most room.
    pub sector_id: Option<String>,
    /// How many units.
    pub count: u32,
    /// The catcher's address, when the mail is to be waited for.
    pub mail_url: Option<String>,
    /// For all of it.
    pub time_max: Duration,
}

/// A step that was done.
#[derive(Debug)]
pub enum PurchaseStep {
    /// Somebody is known by name.
    SignedIn(Person),
    /// In line.
    Joined {
        /// Number in line.
        seq: u64,
        /// How many stand before, plus one.
        position: u64,
    },
    /// The line moved.
    Moved {
        /// How many stand before, plus one.
        position: u64,
    },
    /// May buy.
    Turn {
        /// The turn's number.
        fencing_number: u64,
    },
    /// Units are held.
    Claimed(Claim),
    /// The provider has a page.
    PaymentOpen(Payment),
    /// The money is there.
    Paid(Payment),
    /// The tickets are there.
    Ticketed(Vec<Ticket>),
    /// The confirmation is there.
    Mailed(Mail),
}

/// A caught mail, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub struct Mail {
    /// Its id in the catcher.
    pub id: String,
    /// Its subject.
    pub subject: String,
}

/// What the catcher answers.
#[derive(Debug, Deserialize)]
struct Mails {
    /// Newest first.
    mails: Vec<Mail>,
}

/// Why an order came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Nobody could be signed in.
    #[error(transparent)]
    FrontDoor(#[from] FrontDoorError),
    /// A step failed.
    #[error(transparent)]
    Purchase(#[from] PurchaseError),
    /// The catcher could not be asked.
    #[error("failed to look for the mail at {url}")]
    Mail {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The mail did not come.
    #[error("the confirmation mail did not come")]
    NoMail,
}

impl OrderError {
    /// Whether the stock was gone: what most of a crowd hears.
    #[must_use]
    pub fn is_sold_out(&self) -> bool {
        match self {
            Self::Purchase(error) => error.is_sold_out(),
            Self::FrontDoor(_) | Self::Mail { .. } | Self::NoMail => false,
        }
    }
}

/// Does all of it as `email`; `told` hears of every step.
pub async fn place_order(
    door: &FrontDoor,
    email: &str,
    order: &Order,
    mut told: impl FnMut(PurchaseStep),
) -> Result<(), OrderError> {
    let deadline = Deadline::after(order.time_max);
    let person = door.sign_in(email, "customer").await?;
    told(PurchaseStep::SignedIn(person.clone()));
    let buyer = Buyer::new(door, &person, &order.event_id, deadline);
    let standing = buyer.join().await?;
    let seq = standing.entry.as_ref().map(|entry| entry.seq).unwrap_or_default();
    told(PurchaseStep::Joined { seq, position: standing.position });
    let turn = match standing.turn {
        Some(turn) => turn,
        None => {
            // The first word of every stream is where we stand, which is often no news.
            let mut last = standing.position;
            let moved = |position| {
                if std::mem::replace(&mut last, position) != position {
                    told(PurchaseStep::Moved { position });
                }
            };
            buyer.wait_for_turn(moved).await?
        }
    };
    told(PurchaseStep::Turn { fencing_number: turn.fencing_number });
    let claim = match claim_where_free(&buyer, &person, order, &turn.token, deadline).await {
        Ok(claim) => claim,
        Err(error) => {
            // The turn is of no use to us; the next in line may have more luck.
            buyer.leave().await?;
            return Err(error.into());
        }
    };
    told(PurchaseStep::Claimed(claim.clone()));
    let payment = buyer.open_payment(&claim.claim_id).await?;
    told(PurchaseStep::PaymentOpen(payment.clone()));
    buyer.act_at_provider(&payment, "pay").await?;
    let payment = buyer.payment_outcome(payment).await?;
    if payment.state() != PaymentState::Confirmed {
        return Err(PurchaseError::PaymentEnded { state: payment.state() }.into());
    }
    told(PurchaseStep::Paid(payment));
    let count = claim.items.iter().map(|item| item.units.len()).sum();
    let mut tickets = buyer.tickets(&claim.claim_id, count).await?;
    tickets.sort_by_key(|ticket| ticket.unit.as_ref().map(|unit| unit.number));
    told(PurchaseStep::Ticketed(tickets));
    if let Some(url) = &order.mail_url {
        told(PurchaseStep::Mailed(wait_for_mail(door, url, email, deadline).await?));
    }
    Ok(())
}

/// Claims where there is most room, and elsewhere when others were faster, until nowhere is enough.
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
                // Asked again only while some sector still has room, so this ends with the stock.
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

/// The most free units of a sector, and which.
async fn most_free(
    person: &Person,
    order: &Order,
    deadline: Deadline,
) -> Result<(u32, String), PurchaseError> {
    let asked = retry_until(deadline, || {
        let mut inventory = person.inventory();
        let request = GetAvailabilityRequest { event_id: order.event_id.clone(), ..Default::default() };
        async move { inventory.get_availability(request).await }
    });
    let failed = |status: Status| PurchaseError::Call { step: "looking for room", status: Box::new(status) };
    let availability = asked.await.map_err(failed)?.into_inner().availability.unwrap_or_default();
    let sectors = availability.sectors.into_iter().map(|sector| (sector.free_count, sector.sector_id));
    Ok(sectors.max().unwrap_or_default())
}

/// The newest mail to `email`, once there is one.
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
