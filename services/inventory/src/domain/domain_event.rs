//! Changes to publish to other services, before `convert` encodes them for the outbox.

use std::collections::HashMap;

use onsale_types::{EventId, SectorId, Timestamp};

use super::{
    counts::Counts,
    event::{Event, Sector},
    invitation::{Invitation, Invitee},
    quota::Quota,
};

/// A change to publish.
#[derive(Clone, Debug)]
pub(crate) enum DomainEvent<'a> {
    /// A draft is new or has changed; the highest revision counts.
    EventCreated {
        event: &'a Event,
        sectors: &'a [Sector],
    },
    EventActivated(&'a Event),
    EventEnded(&'a Event),
    /// Nothing is free or held.
    InventorySoldOut {
        event_id: EventId,
        revision: u64,
        time: Timestamp,
    },
    /// A sold-out event has free units again.
    InventoryAvailable {
        event_id: EventId,
        revision: u64,
        time: Timestamp,
        sectors: &'a [Sector],
        counts: &'a HashMap<SectorId, Counts>,
    },
    QuotaInvitation {
        event: &'a Event,
        sector: &'a Sector,
        quota: &'a Quota,
        invitation: &'a Invitation,
        invitee: &'a Invitee,
        /// Page with the invitation's token.
        accept_url: String,
    },
}
