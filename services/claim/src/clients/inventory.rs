//! Inventory: reserving, committing and releasing holds. Every call may be made any number of times.

use std::{sync::LazyLock, time::Duration};

use onsale_kit::{client::Channel, error::Reason};
use onsale_proto::{
    inventory::v1::{
        CommitHoldRequest, ErrorReason, ReleaseHoldRequest, ReserveUnitsRequest,
        inventory_internal_service_client::InventoryInternalServiceClient,
    },
    r#type::v1::ErrorReason as CommonReason,
};
use onsale_types::{CustomerId, EventId, HoldId, RequestId};

use super::Error;
use crate::{
    convert,
    domain::{Reservation, Selection},
};

const NAME: &str = "inventory";

/// What Claim passes on of what Inventory says.
static PASSED_ON: LazyLock<[Reason; 6]> = LazyLock::new(|| {
    [
        name_of(ErrorReason::UnitsTaken),
        name_of(ErrorReason::NotEnoughUnits),
        name_of(ErrorReason::EventNotOnSale),
        name_of(ErrorReason::SectorNotFound),
        CommonReason::EventNotFound.into(),
        // Only Inventory knows the sectors' kinds and the event's limit; the selections have the same path there.
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
}

impl Inventory {
    /// Calls over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { client: InventoryInternalServiceClient::new(channel) }
    }

    /// Sets units aside, all or none. A hold that was made before is answered as it is.
    pub async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Reservation, Error> {
        let request = ReserveUnitsRequest {
            request_id: step(reserve.hold, "reserve"),
            hold_id: reserve.hold.to_string(),
            event_id: reserve.event.to_string(),
            customer_id: reserve.customer.to_string(),
            selections: reserve.selections.iter().map(convert::selection_to_pb).collect(),
            invitation_token: String::new(),
            release_after: convert::duration(reserve.release_after),
        };
        let answer = self.client.clone().reserve_units(request).await;
        let answer = answer.map_err(|status| Error::of(NAME, status, &*PASSED_ON))?;
        convert::reservation(answer.into_inner()).map_err(|what| Error::Answer { neighbour: NAME, what })
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
