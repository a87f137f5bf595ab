//! Inventory: reserving, committing and releasing holds. Every call may be made any number of times.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use onsale_kit::{client::Channel, config::Secret, error::Reason};
use onsale_proto::{
    inventory::v1::{
        CommitHoldRequest, ErrorReason, ReleaseHoldRequest, ReserveUnitsRequest, ReserveUnitsResponse,
        inventory_internal_service_client::InventoryInternalServiceClient,
    },
    r#type::v1::ErrorReason as CommonReason,
};
use onsale_types::{CustomerId, EventId, HoldId, RequestId};
use quick_cache::sync::Cache;

use super::Error;
use crate::{
    convert,
    domain::{EventSummary, Reservation, Selection},
};

/// What it is called.
pub const NAME: &str = "inventory";

/// About so many events are remembered. Those that are forgotten are told again.
const EVENTS_MAX: usize = 1_000;

/// What Claim passes on of what Inventory says.
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
        // Only Inventory knows the sectors' kinds and the event's limit; the selections have the same path there.
        CommonReason::FieldsInvalid.into(),
    ]
});

/// Of those, what it says of a request that never was right and never will be: no try of it can have set anything aside.
static FOR_GOOD: LazyLock<[Reason; 4]> = LazyLock::new(|| {
    [
        name_of(ErrorReason::SectorNotFound),
        name_of(ErrorReason::InvitationTokenInvalid),
        CommonReason::EventNotFound.into(),
        CommonReason::FieldsInvalid.into(),
    ]
});

/// What is to be set aside.
#[derive(Clone, Debug)]
pub struct Reserve<'a> {
    /// Under which id.
    pub hold: HoldId,
    /// Of which event.
    pub event: EventId,
    /// For whom.
    pub customer: CustomerId,
    /// What.
    pub selections: &'a [Selection],
    /// The token of the invitation whose quota they come from. None: from the public sale.
    pub invitation: Option<&'a Secret>,
    /// When Inventory gives it back by itself.
    pub release_after: Duration,
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The units are sold.
    Committed,
    /// The units went back before.
    Gone,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The units went back, now or before, or were never set aside.
    Released,
    /// The units are sold.
    Committed,
}

/// The client.
#[derive(Clone, Debug)]
pub struct Inventory {
    client: InventoryInternalServiceClient<Channel>,
    /// What it told of events, so that it need not tell them with every hold.
    events: Arc<Cache<EventId, KnownEvent>>,
}

/// What Inventory told of an event.
#[derive(Clone, Debug)]
struct KnownEvent {
    revision: u64,
    summary: Arc<EventSummary>,
}

impl Inventory {
    /// Calls over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let client = InventoryInternalServiceClient::new(channel);
        Self { client, events: Arc::new(Cache::new(EVENTS_MAX)) }
    }

    /// Sets units aside, all or none. None: the hold was made and given back before.
    pub async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Option<Reservation>, Error> {
        let known = self.events.get(&reserve.event);
        let request = ReserveUnitsRequest {
            request_id: step(reserve.hold, "reserve"),
            hold_id: reserve.hold.to_string(),
            event_id: reserve.event.to_string(),
            customer_id: reserve.customer.to_string(),
            selections: reserve.selections.iter().map(convert::selection_to_pb).collect(),
            invitation_token: reserve.invitation.map(|it| it.expose().to_owned()).unwrap_or_default(),
            release_after: convert::duration(reserve.release_after),
            known_event_revision: known.as_ref().map(|known| known.revision).unwrap_or_default(),
        };
        let answer = self.client.clone().reserve_units(request).await;
        let answer = answer.map_err(|status| Error::of(NAME, status, &*PASSED_ON))?;
        self.reservation(reserve.event, known, answer.into_inner())
            .map_err(|what| Error::Answer { neighbor: NAME, what })
    }

    /// What an answer says of `event`, of which `known` was known before.
    fn reservation(
        &self,
        event: EventId,
        known: Option<KnownEvent>,
        mut answer: ReserveUnitsResponse,
    ) -> Result<Option<Reservation>, &'static str> {
        let summary = match answer.event.take() {
            Some(told) => {
                let summary = Arc::new(convert::event(told)?);
                if summary.id != event {
                    return Err("event_id");
                }
                let known = KnownEvent { revision: answer.event_revision, summary: Arc::clone(&summary) };
                self.events.insert(event, known);
                summary
            }
            None => known.filter(|known| known.revision == answer.event_revision).ok_or("event")?.summary,
        };
        convert::reservation(answer, summary)
    }

    /// Makes a hold's units sold.
    pub async fn commit(&self, hold: HoldId) -> Result<Commit, Error> {
        let request = CommitHoldRequest { request_id: step(hold, "commit"), hold_id: hold.to_string() };
        let Err(status) = self.client.clone().commit_hold(request).await else {
            return Ok(Commit::Committed);
        };
        let gone = [ErrorReason::HoldReleased, ErrorReason::HoldNotFound];
        if gone.into_iter().any(|reason| is(&status, reason)) {
            return Ok(Commit::Gone);
        }
        Err(Error::of(NAME, status, &[]))
    }

    /// Gives a hold's units back.
    pub async fn release(&self, hold: HoldId) -> Result<Release, Error> {
        let request = ReleaseHoldRequest { request_id: step(hold, "release"), hold_id: hold.to_string() };
        let Err(status) = self.client.clone().release_hold(request).await else {
            return Ok(Release::Released);
        };
        if is(&status, ErrorReason::HoldNotFound) {
            return Ok(Release::Released);
        }
        if is(&status, ErrorReason::HoldCommitted) {
            return Ok(Release::Committed);
        }
        Err(Error::of(NAME, status, &[]))
    }
}

/// Whether Inventory refused what it can never have done, so that there is nothing to give back.
#[must_use]
pub fn is_refused_for_good(error: &Error) -> bool {
    matches!(error, Error::Refused { neighbor, reason, .. } if *neighbor == NAME && FOR_GOOD.contains(reason))
}

/// The request of one step of a hold's life: the same in every process and after every crash.
fn step(hold: HoldId, step: &str) -> String {
    RequestId::derive(hold.as_uuid(), step).to_string()
}

fn name_of(reason: ErrorReason) -> Reason {
    Reason::from_proto(reason.as_str_name())
}

fn is(status: &tonic::Status, reason: ErrorReason) -> bool {
    super::reason_of(status).as_deref() == Some(name_of(reason).as_str())
}
