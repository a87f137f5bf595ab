//! How domain values are written in columns, and read back. What cannot be read was not written by this service.

use std::time::SystemTime;

use onsale_storage::postgres::{Row, column};
use onsale_types::Timestamp;
use uuid::Uuid;

use crate::{
    domain::{HoldState, ReleaseReason, Stage},
    error::Error,
};

/// A point in time as the driver takes it.
pub(super) fn system_time(time: Timestamp) -> Result<SystemTime, Error> {
    time.to_system_time().ok_or(Error::Stored { what: "time" })
}

/// A point in time from column `name`.
pub(super) fn timestamp(row: &Row, name: &'static str) -> Result<Timestamp, Error> {
    Timestamp::from_system_time(column(row, name)?).ok_or(Error::Stored { what: name })
}

/// An id from column `name`.
pub(super) fn id<T>(row: &Row, name: &'static str, make: impl FnOnce(Uuid) -> T) -> Result<T, Error> {
    Ok(make(column(row, name)?))
}

/// A count from column `name`.
pub(super) fn count(row: &Row, name: &'static str) -> Result<u32, Error> {
    u32::try_from(column::<i32>(row, name)?).map_err(|_negative| Error::Stored { what: name })
}

/// A count as a column takes it.
pub(super) fn integer(count: u32) -> Result<i32, Error> {
    i32::try_from(count).map_err(|_large| Error::Stored { what: "count" })
}

/// A stage as the columns `state` and `release_reason`.
pub(super) fn stage_columns(stage: Stage) -> (&'static str, Option<&'static str>) {
    match stage {
        Stage::Claimed => ("CLAIMED", None),
        Stage::Confirmed => ("CONFIRMED", None),
        Stage::Released(ReleaseReason::Customer) => ("RELEASED", Some("CUSTOMER")),
        Stage::Released(ReleaseReason::Expired) => ("RELEASED", Some("EXPIRED")),
        Stage::Released(ReleaseReason::PaymentFailed) => ("RELEASED", Some("PAYMENT_FAILED")),
        Stage::Rejected => ("RELEASED", Some("REJECTED")),
    }
}

/// The stage in the columns `state` and `release_reason`.
pub(super) fn stage(row: &Row) -> Result<Stage, Error> {
    match (column::<&str>(row, "state")?, column::<Option<&str>>(row, "release_reason")?) {
        ("CLAIMED", None) => Ok(Stage::Claimed),
        ("CONFIRMED", None) => Ok(Stage::Confirmed),
        ("RELEASED", Some("CUSTOMER")) => Ok(Stage::Released(ReleaseReason::Customer)),
        ("RELEASED", Some("EXPIRED")) => Ok(Stage::Released(ReleaseReason::Expired)),
        ("RELEASED", Some("PAYMENT_FAILED")) => Ok(Stage::Released(ReleaseReason::PaymentFailed)),
        ("RELEASED", Some("REJECTED")) => Ok(Stage::Rejected),
        _ => Err(Error::Stored { what: "state" }),
    }
}

/// The state of a claim's hold as a column.
pub(super) fn hold_column(state: HoldState) -> &'static str {
    match state {
        HoldState::Held => "HELD",
        HoldState::Committed => "COMMITTED",
        HoldState::Releasing => "RELEASING",
        HoldState::Released => "RELEASED",
    }
}

/// The state of a claim's hold in the column `hold_state`.
pub(super) fn hold_state(row: &Row) -> Result<HoldState, Error> {
    match column::<&str>(row, "hold_state")? {
        "HELD" => Ok(HoldState::Held),
        "COMMITTED" => Ok(HoldState::Committed),
        "RELEASING" => Ok(HoldState::Releasing),
        "RELEASED" => Ok(HoldState::Released),
        _ => Err(Error::Stored { what: "hold_state" }),
    }
}
