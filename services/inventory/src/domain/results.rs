//! Results of use cases, as `convert` encodes them.

use std::sync::Arc;

use onsale_types::{EventId, QuotaId, Timestamp};

use super::{
    event::{Event, Offer, Sector},
    hold::Hold,
    invitation::Invitation,
    quota::Quota,
};

#[derive(Clone, Debug)]
pub(crate) struct EventAndOffer {
    pub(crate) event: Event,
    pub(crate) offer: Arc<Offer>,
}

/// A new or repeated reservation.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) event: Arc<Event>,
    pub(crate) offer: Arc<Offer>,
    pub(crate) hold: Hold,
}

/// An ended hold, with the offer of its event (empty for a tombstone).
#[derive(Clone, Debug)]
pub(crate) struct HoldAndOffer {
    pub(crate) hold: Hold,
    pub(crate) offer: Arc<Offer>,
}

#[derive(Clone, Debug)]
pub(crate) struct EventsPage {
    /// The events with their sectors, which come without layouts.
    pub(crate) events: Vec<(Event, Vec<Sector>)>,
    /// Start time and id of the page's last event; `None` on the last page.
    pub(crate) next: Option<(Timestamp, EventId)>,
}

#[derive(Clone, Debug)]
pub(crate) struct QuotasPage {
    pub(crate) quotas: Vec<Quota>,
    /// Create time and id of the page's last quota; `None` on the last page.
    pub(crate) next: Option<(Timestamp, QuotaId)>,
}

/// The invitations of a request, new ones and earlier ones to the same addresses, and the quota after it.
#[derive(Clone, Debug)]
pub(crate) struct InvitedToQuota {
    pub(crate) invitations: Vec<Invitation>,
    pub(crate) quota: Quota,
}

#[derive(Clone, Debug)]
pub(crate) struct AcceptedInvitation {
    pub(crate) invitation: Invitation,
    pub(crate) quota: Quota,
    pub(crate) event: Event,
    pub(crate) sector: Sector,
}
