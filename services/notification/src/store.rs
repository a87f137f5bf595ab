//! What Notification keeps in Postgres: takes and returns domain types. It keeps nothing in Redis.

pub mod dead_letters;
pub mod deliveries;
pub mod event_owners;
pub mod jobs;
pub mod waiting_orders;

use std::time::SystemTime;

use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use onsale_storage::postgres::{self, Row, column};
use onsale_types::Timestamp;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres failed.
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    /// A row has something that this version does not know.
    #[error("column {column} has what nobody can read")]
    Unreadable {
        /// Which column.
        column: &'static str,
    },
    /// JSON does not fit.
    #[error("failed to read or write the JSON of {column}")]
    Json {
        /// Which column.
        column: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Postgres(error) => error.kind(),
            Self::Unreadable { .. } | Self::Json { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Postgres(error) => error.reason(),
            Self::Unreadable { .. } | Self::Json { .. } => ErrorReason::Internal.into(),
        }
    }
}

/// A column that holds the name of something.
fn named<T>(row: &Row, name: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
    parse(column(row, name)?).ok_or(Error::Unreadable { column: name })
}

/// A column that holds a time, or nothing.
fn time(row: &Row, name: &'static str) -> Result<Option<Timestamp>, Error> {
    let time: Option<SystemTime> = column(row, name)?;
    time.map(|time| Timestamp::from_system_time(time).ok_or(Error::Unreadable { column: name })).transpose()
}

/// A column that always holds a time.
fn required_time(row: &Row, name: &'static str) -> Result<Timestamp, Error> {
    time(row, name)?.ok_or(Error::Unreadable { column: name })
}

fn to_json(column: &'static str, value: &impl serde::Serialize) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|source| Error::Json { column, source })
}

fn from_json<T: serde::de::DeserializeOwned>(
    column: &'static str,
    value: serde_json::Value,
) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|source| Error::Json { column, source })
}
