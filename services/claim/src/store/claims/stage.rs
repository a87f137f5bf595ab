//! The columns `state` and `release_reason`, which together store a [`Stage`].

use onsale_storage::postgres::{Row, row::RowExt as _};
use onsale_types::Named as _;

use crate::{
    domain::{ClaimState, ReleaseReason, Stage},
    error::Error,
};

/// Values of `release_reason`. A rejected claim is stored as RELEASED with the reason REJECTED.
#[derive(Clone, Copy, Debug, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
enum ReasonColumn {
    Customer,
    Expired,
    PaymentFailed,
    Rejected,
}

/// Returns the values of `state` and `release_reason`.
pub(super) fn columns(stage: Stage) -> (&'static str, Option<&'static str>) {
    let (state, reason) = match stage {
        Stage::Claimed => (ClaimState::Claimed, None),
        Stage::Confirmed => (ClaimState::Confirmed, None),
        Stage::Released(reason) => {
            let reason = match reason {
                ReleaseReason::Customer => ReasonColumn::Customer,
                ReleaseReason::Expired => ReasonColumn::Expired,
                ReleaseReason::PaymentFailed => ReasonColumn::PaymentFailed,
            };
            (ClaimState::Released, Some(reason))
        }
        Stage::Rejected => (ClaimState::Released, Some(ReasonColumn::Rejected)),
    };
    (state.name(), reason.map(|reason| reason.name()))
}

/// Reads the stage from `state` and `release_reason`.
pub(super) fn read(row: &Row) -> Result<Stage, Error> {
    match (row.read_named("state")?, row.read_optional_named("release_reason")?) {
        (ClaimState::Claimed, None) => Ok(Stage::Claimed),
        (ClaimState::Confirmed, None) => Ok(Stage::Confirmed),
        (ClaimState::Released, Some(ReasonColumn::Customer)) => Ok(Stage::Released(ReleaseReason::Customer)),
        (ClaimState::Released, Some(ReasonColumn::Expired)) => Ok(Stage::Released(ReleaseReason::Expired)),
        (ClaimState::Released, Some(ReasonColumn::PaymentFailed)) => {
            Ok(Stage::Released(ReleaseReason::PaymentFailed))
        }
        (ClaimState::Released, Some(ReasonColumn::Rejected)) => Ok(Stage::Rejected),
        (ClaimState::Claimed | ClaimState::Confirmed, Some(_)) | (ClaimState::Released, None) => {
            Err(Error::Stored { what: "state" })
        }
    }
}
