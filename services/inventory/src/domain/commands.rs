//! Parsed requests, as `convert` builds them and the use cases take them.

use std::time::Duration;

use onsale_kit::{config::Secret, error::InvalidFields};
use onsale_types::{CustomerId, EventId, HoldId, OrganizerId, PageSize, QuotaId, Timestamp};

use super::{
    event::{Draft, Event, EventState, Sector},
    hold::Selection,
};

/// A request to hold units.
#[derive(Clone, Debug)]
pub(crate) struct ReserveUnits {
    /// Created by the caller; makes the request idempotent.
    pub(crate) hold_id: HoldId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// Each of another sector.
    pub(crate) selections: Vec<Selection>,
    /// Time after which the hold expires.
    pub(crate) release_after: Duration,
    /// Token of the invitation whose quota the units come from. `None`: the public sale.
    pub(crate) invitation_token: Option<Secret>,
}

/// A request to keep units for a group.
#[derive(Clone, Debug)]
pub(crate) struct CreateQuota {
    pub(crate) event_id: EventId,
    pub(crate) name: String,
    pub(crate) selection: Selection,
    /// Time at which unused units go to the public sale.
    pub(crate) return_time: Timestamp,
}

/// Filter and page of a list of events.
#[derive(Clone, Debug)]
pub(crate) struct ListEvents {
    /// `None`: events of all organizers.
    pub(crate) organizer_id: Option<OrganizerId>,
    /// Empty: all states.
    pub(crate) states: Vec<EventState>,
    /// Earliest start time.
    pub(crate) start_from: Option<Timestamp>,
    /// Start time before which listed events start.
    pub(crate) start_until: Option<Timestamp>,
    pub(crate) page_size: PageSize,
    /// Start time and id of the last event of the previous page.
    pub(crate) after: Option<(Timestamp, EventId)>,
}

/// Page of a list of quotas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListQuotas {
    pub(crate) event_id: EventId,
    pub(crate) page_size: PageSize,
    /// Create time and id of the last quota of the previous page.
    pub(crate) after: Option<(Timestamp, QuotaId)>,
}

/// Requested changes of some fields of a draft. They are valid or not only together with the fields that stay, so they are
/// checked after the draft has been read.
pub(crate) trait DraftChange: Sync {
    /// The revision that the draft must have; `None`: any.
    fn expected_revision(&self) -> Option<u64>;

    /// Returns the changed draft, or every violation.
    fn apply(&self, event: &Event, sectors: &[Sector]) -> Result<Draft, InvalidFields>;
}
