//! Client of Inventory, which reserves, commits and releases holds. Every call is idempotent.

use std::sync::{Arc, LazyLock};

use onsale_kit::{client::Channel, error::Reason};
use onsale_proto::{
    inventory::v1::{
        ErrorReason, ReserveUnitsResponse, inventory_internal_service_client::InventoryInternalServiceClient,
    },
    r#type::v1::ErrorReason as CommonReason,
};
use onsale_types::{EventId, HoldId};
use quick_cache::sync::Cache;

use super::Error;
use crate::{
    convert::clients as convert,
    domain::{EventSummary, Reservation, ReserveUnits},
};

pub(crate) const NAME: &str = "inventory";

/// Approximate number of cached events. Inventory sends an evicted event again with the next hold.
const EVENTS_MAX: usize = 1_000;

/// Reasons of Inventory that Claim passes on to its own callers.
static PASSED_ON: LazyLock<[Reason; 11]> = LazyLock::new(|| {
    [
        name_of(ErrorReason::UnitsTaken),
        name_of(ErrorReason::NotEnoughUnits),
        name_of(ErrorReason::EventNotOnSale),
        name_of(ErrorReason::SectorNotFound),
        name_of(ErrorReason::InvitationTokenInvalid),
        name_of(ErrorReason::InvitationNotAccepted),
        name_of(ErrorReason::InvitationAcceptedByAnother),
        name_of(ErrorReason::InvitationExpired),
        name_of(ErrorReason::InvitationUsed),
        CommonReason::EventNotFound.into(),
        // Only Inventory knows the kinds of sectors and the event's limit. The field paths of selections are the same there.
        CommonReason::FieldsInvalid.into(),
    ]
});

/// Those reasons that hold for every attempt of a request, so that none of its attempts can have reserved anything.
static PERMANENT: LazyLock<[Reason; 4]> = LazyLock::new(|| {
    [
        name_of(ErrorReason::SectorNotFound),
        name_of(ErrorReason::InvitationTokenInvalid),
        CommonReason::EventNotFound.into(),
        CommonReason::FieldsInvalid.into(),
    ]
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// The units are sold.
    Committed,
    /// The hold was released before.
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseOutcome {
    /// The units are free, or the hold never existed.
    Released,
    /// The units are sold.
    Committed,
}

#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    client: InventoryInternalServiceClient<Channel>,
    /// Events that Inventory has sent. It omits an event from a response if the request names its revision.
    events: Arc<Cache<EventId, CachedEvent>>,
}

#[derive(Clone, Debug)]
struct CachedEvent {
    revision: u64,
    summary: Arc<EventSummary>,
}

impl Inventory {
    pub(crate) fn new(channel: Channel) -> Self {
        let client = InventoryInternalServiceClient::new(channel);
        Self { client, events: Arc::new(Cache::new(EVENTS_MAX)) }
    }

    /// Reserves all selected units or none. Returns `None` if the hold existed and was released.
    pub(crate) async fn reserve_units(
        &self,
        command: &ReserveUnits<'_>,
    ) -> Result<Option<Reservation>, Error> {
        let cached = self.events.get(&command.event_id);
        let known_revision = cached.as_ref().map(|cached| cached.revision);
        let request = convert::reserve_units(command, known_revision);
        let response = self.client.clone().reserve_units(request).await;
        let response = response.map_err(|status| Error::of(NAME, status, &*PASSED_ON))?;
        self.read_reservation(command.event_id, cached, response.into_inner())
            .map_err(|what| Error::Response { neighbor: NAME, what })
    }

    /// Reads a reservation and caches its event. The error names the invalid field.
    fn read_reservation(
        &self,
        event_id: EventId,
        cached: Option<CachedEvent>,
        mut response: ReserveUnitsResponse,
    ) -> Result<Option<Reservation>, &'static str> {
        let revision = response.event_revision;
        let summary = match response.event.take() {
            Some(event) => {
                let summary = Arc::new(convert::event_summary(event)?);
                if summary.id != event_id {
                    return Err("event_id");
                }
                self.events.insert(event_id, CachedEvent { revision, summary: Arc::clone(&summary) });
                summary
            }
            None => cached.filter(|cached| cached.revision == revision).ok_or("event")?.summary,
        };
        convert::reservation(response, summary)
    }

    /// Sells the units of a hold.
    pub(crate) async fn commit_hold(&self, hold_id: HoldId) -> Result<CommitOutcome, Error> {
        let Err(status) = self.client.clone().commit_hold(convert::commit_hold(hold_id)).await else {
            return Ok(CommitOutcome::Committed);
        };
        let released = [ErrorReason::HoldReleased, ErrorReason::HoldNotFound];
        if released.into_iter().any(|reason| has_reason(&status, reason)) {
            return Ok(CommitOutcome::Released);
        }
        Err(Error::of(NAME, status, &[]))
    }

    /// Frees the units of a hold.
    pub(crate) async fn release_hold(&self, hold_id: HoldId) -> Result<ReleaseOutcome, Error> {
        let Err(status) = self.client.clone().release_hold(convert::release_hold(hold_id)).await else {
            return Ok(ReleaseOutcome::Released);
        };
        if has_reason(&status, ErrorReason::HoldNotFound) {
            return Ok(ReleaseOutcome::Released);
        }
        if has_reason(&status, ErrorReason::HoldCommitted) {
            return Ok(ReleaseOutcome::Committed);
        }
        Err(Error::of(NAME, status, &[]))
    }
}

/// Returns true if Inventory refused a reservation that no attempt of the same request can obtain, so there is no hold to
/// release.
pub(crate) fn is_permanent_refusal(error: &Error) -> bool {
    matches!(error, Error::Refused { neighbor, reason, .. } if *neighbor == NAME && PERMANENT.contains(reason))
}

fn name_of(reason: ErrorReason) -> Reason {
    Reason::from_proto(reason.as_str_name())
}

fn has_reason(status: &tonic::Status, reason: ErrorReason) -> bool {
    super::reason_of(status).as_deref() == Some(name_of(reason).as_str())
}
