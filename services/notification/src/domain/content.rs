//! What messages are about. Also the form in which a job keeps it, as JSON: fields may be added, not renamed.

use std::{fmt, time::Duration};

use onsale_types::{ClaimId, EventId, Money, TicketId, Timestamp};
use serde::{Deserialize, Serialize};

/// Which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Template {
    /// What was bought, with its tickets.
    OrderConfirmation,
    /// Tickets.
    TicketDelivery,
    /// An invitation to buy from a quota.
    QuotaInvitation,
    /// How far the line has moved.
    QueueUpdate,
    /// The turn has come.
    QueueYourTurn,
    /// The event is near.
    Reminder,
    /// Money goes back.
    Refund,
}

impl Template {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::OrderConfirmation,
        Self::TicketDelivery,
        Self::QuotaInvitation,
        Self::QueueUpdate,
        Self::QueueYourTurn,
        Self::Reminder,
        Self::Refund,
    ];

    /// Its name, as the store and metrics have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderConfirmation => "ORDER_CONFIRMATION",
            Self::TicketDelivery => "TICKET_DELIVERY",
            Self::QuotaInvitation => "QUOTA_INVITATION",
            Self::QueueUpdate => "QUEUE_UPDATE",
            Self::QueueYourTurn => "QUEUE_YOUR_TURN",
            Self::Reminder => "REMINDER",
            Self::Refund => "REFUND",
        }
    }

    /// The template of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|template| template.name() == name)
    }
}

/// What a message says about its event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Which event.
    pub event_id: EventId,
    /// Its name.
    pub name: String,
    /// The venue's name.
    pub venue_name: String,
    /// The venue's street address.
    pub venue_address: Option<String>,
    /// IANA name of the venue's time zone.
    pub time_zone: String,
    /// When it starts.
    pub start_time: Timestamp,
}

/// One place in a sector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its number within the sector.
    pub number: u32,
    /// Its seat; none in general admission.
    pub seat: Option<Seat>,
}

/// A seat as it is printed on the chair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Label of the row.
    pub row: String,
    /// Label of the seat in its row.
    pub seat: String,
}

/// Places of one sector at one price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The sector's name.
    pub sector_name: String,
    /// The places.
    pub places: Vec<Place>,
    /// Price of one.
    pub unit_price: Money,
    /// Price of all.
    pub amount: Money,
}

/// A ticket. Its code admits: it is never printed but in the mail.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Which ticket.
    pub ticket_id: TicketId,
    /// The sector's name.
    pub sector_name: String,
    /// The place it admits to.
    pub place: Place,
    /// What admits.
    pub code: String,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ticket").field("ticket_id", &self.ticket_id).finish_non_exhaustive()
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "template", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Content {
    /// What was bought.
    OrderConfirmation {
        /// The event.
        event: Event,
        /// The order's number.
        claim_id: ClaimId,
        /// What was bought.
        items: Vec<Item>,
        /// What was paid.
        total: Money,
        /// The tickets; none when they come by another mail.
        tickets: Vec<Ticket>,
    },
    /// Tickets for their holder.
    TicketDelivery {
        /// The event.
        event: Event,
        /// The tickets.
        tickets: Vec<Ticket>,
    },
    /// An invitation.
    QuotaInvitation {
        /// The event.
        event: Event,
        /// Who is invited.
        quota_name: String,
        /// The sector.
        sector_name: String,
        /// Most places that may be bought.
        unit_count: u32,
        /// Where to accept. Contains a token.
        accept_url: String,
        /// When it stops being worth anything.
        expire_time: Timestamp,
    },
    /// The place in line.
    QueueUpdate {
        /// The event.
        event: Event,
        /// How many wait before the recipient, plus one.
        position: u64,
        /// Shortest likely wait.
        wait_min: Option<Duration>,
        /// Longest likely wait.
        wait_max: Option<Duration>,
    },
    /// The turn.
    QueueYourTurn {
        /// The event.
        event: Event,
        /// When the turn ends.
        turn_expire_time: Timestamp,
        /// Where to choose and pay.
        checkout_url: Option<String>,
    },
    /// The event is near.
    Reminder {
        /// The event.
        event: Event,
        /// How many tickets the recipient holds.
        ticket_count: u32,
    },
    /// Money goes back.
    Refund {
        /// The event.
        event: Event,
        /// The order's number.
        claim_id: ClaimId,
        /// What goes back.
        amount: Money,
    },
}

impl Content {
    /// Which message it is.
    #[must_use]
    pub const fn template(&self) -> Template {
        match self {
            Self::OrderConfirmation { .. } => Template::OrderConfirmation,
            Self::TicketDelivery { .. } => Template::TicketDelivery,
            Self::QuotaInvitation { .. } => Template::QuotaInvitation,
            Self::QueueUpdate { .. } => Template::QueueUpdate,
            Self::QueueYourTurn { .. } => Template::QueueYourTurn,
            Self::Reminder { .. } => Template::Reminder,
            Self::Refund { .. } => Template::Refund,
        }
    }

    /// The event it is about.
    #[must_use]
    pub const fn event(&self) -> &Event {
        match self {
            Self::OrderConfirmation { event, .. }
            | Self::TicketDelivery { event, .. }
            | Self::QuotaInvitation { event, .. }
            | Self::QueueUpdate { event, .. }
            | Self::QueueYourTurn { event, .. }
            | Self::Reminder { event, .. }
            | Self::Refund { event, .. } => event,
        }
    }
}
