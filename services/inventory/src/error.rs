//! Failures of Inventory and their answers to callers. Pages: `docs/errors/inventory.md`.

mod fields;

use std::time::Duration;

use onsale_kit::{
    auth::SignError,
    batcher::SubmitError,
    error::{InvalidFields, Kind, QuotaViolation, Reason, ServiceError, Violation, to_status},
};
use onsale_proto::{inventory::v1::ErrorReason, r#type::v1::ErrorReason as CommonReason};
use onsale_storage::{idempotency, postgres};
use onsale_types::{EventId, HoldId, InvitationId, MoneyError, Named as _, QuotaId, SectorId, Timestamp};

pub(crate) use self::fields::{
    quota_selection, refuse_draft_faults, refuse_invitees, selection, unknown_time_zone,
};
use crate::domain::{
    event::{EventState, IllegalMove, UnknownSector},
    hold::HoldOver,
    invitation::InvitationFault,
};

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Fields of the request are malformed or do not fit the event.
    #[error(transparent)]
    Invalid(#[from] InvalidFields),
    /// Also another organizer's draft.
    #[error("there is no event {event_id}")]
    EventNotFound { event_id: EventId },
    #[error("event {event_id} belongs to another organizer")]
    EventNotOwned { event_id: EventId },
    #[error("the event is {}, only a draft can be changed", state.name())]
    EventNotDraft { state: EventState },
    #[error(transparent)]
    IllegalMove(#[from] IllegalMove),
    #[error("the event has changed and is at revision {revision}")]
    RevisionOutdated {
        /// The current revision.
        revision: u64,
    },
    #[error("the event is not on sale")]
    NotOnSale {
        state: EventState,
        /// `None` if it has passed.
        on_sale_time: Option<Timestamp>,
    },
    #[error("the event has no sector {sector_id}")]
    SectorNotFound { sector_id: SectorId },
    /// Units that were chosen by number are not free.
    #[error("units are taken in sector {sector_id}")]
    UnitsTaken {
        sector_id: SectorId,
        taken: Vec<u32>,
        /// As many free units as were chosen; empty if fewer are free.
        alternatives: Vec<u32>,
    },
    #[error("sector {sector_id} has only {free_count} free units")]
    NotEnoughUnits { sector_id: SectorId, free_count: u32 },
    #[error("there is no hold {hold_id}")]
    HoldNotFound { hold_id: HoldId },
    /// The hold has already ended the other way.
    #[error("hold {hold_id} is over")]
    HoldOver { hold_id: HoldId, over: HoldOver },
    /// The hold exists with other units, another event or another customer.
    #[error("hold id {hold_id} was used before for something else")]
    HoldIdReused { hold_id: HoldId },
    /// Also another organizer's quota.
    #[error("there is no quota {quota_id}")]
    QuotaNotFound { quota_id: QuotaId },
    #[error("quota {quota_id} has only {free_count} units left")]
    QuotaExhausted {
        quota_id: QuotaId,
        /// Units that may still be promised.
        free_count: u32,
    },
    #[error("quota {quota_id} is returned")]
    QuotaReturned { quota_id: QuotaId },
    #[error("{fault}")]
    Invitation { invitation_id: InvitationId, fault: InvitationFault },
    #[error("failed to sign an invitation token")]
    Sign(#[from] SignError),
    /// The token is malformed, not ours, or of another event.
    #[error("the invitation token is not valid for this event")]
    InvitationTokenInvalid,
    /// Every attempt lost its units to another call.
    #[error("other calls took the units at every attempt, try again")]
    Contended,
    #[error(transparent)]
    Batch(Box<SubmitError<Error>>),
    #[error(transparent)]
    Request(#[from] idempotency::Error),
    /// Postgres failed, or a row holds a value that this version cannot read.
    #[error("failed to query postgres")]
    Postgres(#[from] postgres::Error),
    /// A row that must exist is missing or names another row.
    #[error("the stored {what} is missing or does not match")]
    Inconsistent { what: &'static str },
    #[error("failed to add up the price")]
    Amount(#[from] MoneyError),
}

impl From<SubmitError<Self>> for Error {
    fn from(error: SubmitError<Self>) -> Self {
        match error {
            SubmitError::Item(error) => error,
            error => Self::Batch(Box::new(error)),
        }
    }
}

impl From<UnknownSector> for Error {
    fn from(unknown: UnknownSector) -> Self {
        Self::SectorNotFound { sector_id: unknown.0 }
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Invalid(error) => error.kind(),
            Self::HoldIdReused { .. } => Kind::Invalid,
            Self::EventNotFound { .. }
            | Self::SectorNotFound { .. }
            | Self::HoldNotFound { .. }
            | Self::QuotaNotFound { .. } => Kind::NotFound,
            Self::EventNotOwned { .. } | Self::InvitationTokenInvalid => Kind::Forbidden,
            Self::EventNotDraft { .. }
            | Self::IllegalMove(_)
            | Self::NotOnSale { .. }
            | Self::UnitsTaken { .. }
            | Self::NotEnoughUnits { .. }
            | Self::HoldOver { .. }
            | Self::QuotaExhausted { .. }
            | Self::QuotaReturned { .. }
            | Self::Invitation { .. } => Kind::State,
            Self::RevisionOutdated { .. } | Self::Contended => Kind::Contended,
            Self::Batch(error) => error.kind(),
            Self::Request(error) => error.kind(),
            Self::Postgres(error) => error.kind(),
            Self::Inconsistent { .. } | Self::Amount(_) | Self::Sign(_) => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        let own = match self {
            Self::EventNotDraft { .. } => ErrorReason::EventNotDraft,
            Self::IllegalMove(_) => ErrorReason::EventTransitionInvalid,
            Self::RevisionOutdated { .. } => ErrorReason::EventRevisionOutdated,
            Self::NotOnSale { .. } => ErrorReason::EventNotOnSale,
            Self::SectorNotFound { .. } => ErrorReason::SectorNotFound,
            Self::UnitsTaken { .. } => ErrorReason::UnitsTaken,
            Self::NotEnoughUnits { .. } => ErrorReason::NotEnoughUnits,
            Self::HoldNotFound { .. } => ErrorReason::HoldNotFound,
            Self::HoldOver { over: HoldOver::Released, .. } => ErrorReason::HoldReleased,
            Self::HoldOver { over: HoldOver::Committed, .. } => ErrorReason::HoldCommitted,
            Self::HoldIdReused { .. } => ErrorReason::HoldIdReused,
            Self::InvitationTokenInvalid => ErrorReason::InvitationTokenInvalid,
            Self::QuotaNotFound { .. } => ErrorReason::QuotaNotFound,
            Self::QuotaExhausted { .. } => ErrorReason::QuotaExhausted,
            Self::QuotaReturned { .. } => ErrorReason::QuotaReturned,
            Self::Invitation { fault, .. } => match fault {
                InvitationFault::NotAccepted => ErrorReason::InvitationNotAccepted,
                InvitationFault::AcceptedByAnother => ErrorReason::InvitationAcceptedByAnother,
                InvitationFault::Expired { .. } => ErrorReason::InvitationExpired,
                InvitationFault::Used => ErrorReason::InvitationUsed,
            },
            Self::EventNotFound { .. } => return CommonReason::EventNotFound.into(),
            Self::EventNotOwned { .. } => return CommonReason::EventNotOwned.into(),
            Self::Contended => return CommonReason::Contended.into(),
            Self::Inconsistent { .. } | Self::Amount(_) | Self::Sign(_) => {
                return CommonReason::Internal.into();
            }
            Self::Invalid(error) => return error.reason(),
            Self::Batch(error) => return error.reason(),
            Self::Request(error) => return error.reason(),
            Self::Postgres(error) => return error.reason(),
        };
        Reason::from_proto(own.as_str_name())
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::EventNotFound { event_id } | Self::EventNotOwned { event_id } => {
                vec![("event_id", event_id.to_string())]
            }
            Self::EventNotDraft { state } | Self::IllegalMove(IllegalMove { state }) => {
                vec![("state", state.name().to_owned())]
            }
            Self::RevisionOutdated { revision } => vec![("revision", revision.to_string())],
            Self::NotOnSale { state, on_sale_time } => {
                let time = on_sale_time.map(|time| ("on_sale_time", time.to_string()));
                [("state", state.name().to_owned())].into_iter().chain(time).collect()
            }
            Self::SectorNotFound { sector_id } => vec![("sector_id", sector_id.to_string())],
            Self::UnitsTaken { sector_id, taken, alternatives } => {
                let mut metadata =
                    vec![("sector_id", sector_id.to_string()), ("taken_units", numbers(taken))];
                if !alternatives.is_empty() {
                    metadata.push(("alternative_units", numbers(alternatives)));
                }
                metadata
            }
            Self::NotEnoughUnits { sector_id, free_count } => {
                vec![("sector_id", sector_id.to_string()), ("free_count", free_count.to_string())]
            }
            Self::HoldNotFound { hold_id }
            | Self::HoldOver { hold_id, .. }
            | Self::HoldIdReused { hold_id } => vec![("hold_id", hold_id.to_string())],
            Self::Batch(error) => error.metadata(),
            Self::QuotaNotFound { quota_id } | Self::QuotaReturned { quota_id } => {
                vec![("quota_id", quota_id.to_string())]
            }
            Self::QuotaExhausted { quota_id, free_count } => {
                vec![("quota_id", quota_id.to_string()), ("free_count", free_count.to_string())]
            }
            Self::Invitation { invitation_id, fault } => {
                let time = match fault {
                    InvitationFault::Expired { expire_time } => {
                        Some(("expire_time", expire_time.to_string()))
                    }
                    InvitationFault::NotAccepted
                    | InvitationFault::AcceptedByAnother
                    | InvitationFault::Used => None,
                };
                [("invitation_id", invitation_id.to_string())].into_iter().chain(time).collect()
            }
            Self::Invalid(_)
            | Self::Sign(_)
            | Self::InvitationTokenInvalid
            | Self::Contended
            | Self::Request(_)
            | Self::Postgres(_)
            | Self::Inconsistent { .. }
            | Self::Amount(_) => Vec::new(),
        }
    }

    fn violations(&self) -> &[Violation] {
        match self {
            Self::Invalid(error) => error.violations(),
            Self::Batch(error) => error.violations(),
            _ => &[],
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        if let Self::Batch(error) = self { error.retry_after() } else { None }
    }

    fn quota(&self) -> Option<QuotaViolation> {
        if let Self::Batch(error) = self { error.quota() } else { None }
    }
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}

fn numbers(units: &[u32]) -> String {
    units.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
