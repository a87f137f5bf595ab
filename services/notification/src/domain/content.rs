//! Content of a message. A job stores it as JSON, so fields may be added but not renamed.

use std::{fmt, time::Duration};

use onsale_types::{ClaimId, EventId, Money, TicketId, Timestamp};
use serde::{Deserialize, Serialize};

/// Kind of a message, stored with its job and reported in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Template {
    OrderConfirmation,
    TicketDelivery,
    QuotaInvitation,
    QueueUpdate,
    QueueYourTurn,
    Reminder,
    Refund,
}

/// Event that a message is about, as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) event_id: EventId,
    pub(crate) name: String,
    pub(crate) venue_name: String,
    pub(crate) venue_address: Option<String>,
    /// IANA name of the venue's time zone. Times are printed in UTC if it is unknown.
    pub(crate) time_zone: String,
    pub(crate) start_time: Timestamp,
}

/// Unit of a sector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unit {
    /// Number within the sector.
    pub(crate) number: u32,
    /// `None` in general admission.
    pub(crate) seat: Option<Seat>,
}

/// Labels of a seat, as they are printed on the chair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) row: String,
    pub(crate) seat: String,
}

/// Units of one sector at one price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) sector_name: String,
    /// Stored as `places`.
    #[serde(rename = "places")]
    pub(crate) units: Vec<Unit>,
    pub(crate) unit_price: Money,
    /// Price of all units together.
    pub(crate) amount: Money,
}

/// Ticket with its code. The code admits its bearer, so the mail shows it but `Debug` does not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub(crate) ticket_id: TicketId,
    pub(crate) sector_name: String,
    /// Stored as `place`.
    #[serde(rename = "place")]
    pub(crate) unit: Unit,
    pub(crate) code: String,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ticket").field("ticket_id", &self.ticket_id).finish_non_exhaustive()
    }
}

/// Content of a message, one variant per [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "template", rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Content {
    OrderConfirmation {
        event: Event,
        /// Printed as the order number.
        claim_id: ClaimId,
        items: Vec<Item>,
        total: Money,
        /// Empty if the tickets are sent in another mail.
        tickets: Vec<Ticket>,
    },
    TicketDelivery {
        event: Event,
        tickets: Vec<Ticket>,
    },
    QuotaInvitation {
        event: Event,
        quota_name: String,
        sector_name: String,
        /// Maximum number of units that the recipient may buy.
        unit_count: u32,
        /// Page on which to accept. Contains a token.
        accept_url: String,
        expire_time: Timestamp,
    },
    QueueUpdate {
        event: Event,
        /// Position in line, from 1.
        position: u64,
        /// Bounds of the expected wait. The mail shows them only if both are set.
        wait_min: Option<Duration>,
        wait_max: Option<Duration>,
    },
    QueueYourTurn {
        event: Event,
        turn_expire_time: Timestamp,
        /// Page on which to choose and pay. `None`: the mail links to the shop.
        checkout_url: Option<String>,
    },
    Reminder {
        event: Event,
        /// Number of tickets that the recipient holds.
        ticket_count: u32,
    },
    Refund {
        event: Event,
        /// Printed as the order number.
        claim_id: ClaimId,
        amount: Money,
    },
}

impl Content {
    pub(crate) const fn template(&self) -> Template {
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

    pub(crate) const fn event(&self) -> &Event {
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
