//! What can go wrong at the door, sorted by what the caller can do about it.

use std::error::Error as StdError;

use deadpool_postgres::PoolError;
use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::FromSql;

/// Why a statement or a transaction failed. `label` names the attempt, as given by the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection could be made, or the one in use broke. Nothing was committed.
    #[error("postgres is unavailable for {label}")]
    Unavailable {
        /// The attempt.
        label: &'static str,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// Every connection was in use for too long.
    #[error("no postgres connection became free for {label}")]
    Busy {
        /// The attempt.
        label: &'static str,
    },
    /// The call's deadline, or a statement's or lock's limit, came first. Nothing was committed.
    #[error("time ran out in {label}")]
    Timeout {
        /// The attempt.
        label: &'static str,
        /// Postgres' word, where it was the one to stop.
        #[source]
        source: Option<tokio_postgres::Error>,
    },
    /// A unique or exclusion constraint refused the row.
    #[error("{label} conflicts with an existing row ({constraint})")]
    Conflict {
        /// The attempt.
        label: &'static str,
        /// The constraint's name.
        constraint: String,
        /// Postgres' word.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The transaction lost against others each time it was tried.
    #[error("{label} kept losing against concurrent transactions")]
    Contended {
        /// The attempt.
        label: &'static str,
        /// The last loss.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The commit was sent and its answer never came: it may or may not have happened. Doing the whole step again is
    /// right only because every step is idempotent.
    #[error("the outcome of the commit of {label} is unknown")]
    CommitUnknown {
        /// The attempt.
        label: &'static str,
        /// What broke; none when time ran out.
        #[source]
        source: Option<tokio_postgres::Error>,
    },
    /// A statement had failed or been dropped, and the work ended with success nevertheless. Postgres would have
    /// rolled back silently; so did we, and say so.
    #[error("{label} was rolled back: a statement in it had failed")]
    Aborted {
        /// The attempt.
        label: &'static str,
    },
    /// The statement is wrong, or broke a check or a reference.
    #[error("query failed in {label}")]
    Query {
        /// The attempt.
        label: &'static str,
        /// Postgres' word.
        #[source]
        source: tokio_postgres::Error,
    },
    /// More or fewer rows than the statement promised.
    #[error("{label} found {count} rows where there should be one")]
    RowCount {
        /// The attempt.
        label: &'static str,
        /// How many there were.
        count: usize,
    },
    /// A column is missing, has another type, or has a value that its reader refuses (see [`row`](super::row)).
    #[error("failed to read column {name}")]
    Column {
        /// The column.
        name: &'static str,
        /// Why.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A value to be copied does not fit its column.
    #[error("failed to write column {column} of a row")]
    Row {
        /// The place of the column.
        column: usize,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A setting makes no sense.
    #[error("invalid postgres settings: {message}")]
    Config {
        /// What is wrong.
        message: &'static str,
    },
    /// The connection string cannot be read.
    #[error("the postgres url is malformed")]
    Url,
    /// The schema's name would need quoting.
    #[error("`{schema}` is no plain lower-case schema name")]
    Schema {
        /// The name given.
        schema: String,
    },
}

impl Error {
    /// The name of the unique or exclusion constraint that refused the row, if that is what happened.
    #[must_use]
    pub fn conflict(&self) -> Option<&str> {
        match self {
            Self::Conflict { constraint, .. } => Some(constraint),
            _ => None,
        }
    }

    /// A lost race, or a connection that broke before a commit was sent: nothing was done, and doing it again may work.
    pub(super) fn is_without_effect(&self) -> bool {
        matches!(self, Self::Contended { .. } | Self::Unavailable { .. })
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Unavailable { .. } | Self::CommitUnknown { .. } => Kind::Unavailable,
            Self::Busy { .. } => Kind::Limited,
            Self::Timeout { .. } => Kind::Timeout,
            Self::Contended { .. } => Kind::Contended,
            // A conflict that means something to a caller was to be caught by name where it can happen.
            Self::Conflict { .. }
            | Self::Aborted { .. }
            | Self::Query { .. }
            | Self::RowCount { .. }
            | Self::Column { .. }
            | Self::Row { .. }
            | Self::Config { .. }
            | Self::Url
            | Self::Schema { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self.kind() {
            Kind::Unavailable => ErrorReason::DependencyUnavailable,
            Kind::Limited => ErrorReason::Overloaded,
            Kind::Timeout => ErrorReason::DeadlineExceeded,
            Kind::Contended => ErrorReason::Contended,
            _ => ErrorReason::Internal,
        }
        .into()
    }
}

/// Reads one column of `row`.
pub fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &'static str) -> Result<T, Error> {
    row.try_get(name).map_err(|source| Error::Column { name, source })
}

/// Sorts what the driver reports about a statement.
pub(super) fn of_statement(label: &'static str, source: tokio_postgres::Error) -> Error {
    let Some(state) = source.code() else {
        return if source.is_closed() || has_io_cause(&source) {
            Error::Unavailable { label, source: source.into() }
        } else {
            Error::Query { label, source }
        };
    };
    if is_serialization_failure(state) {
        Error::Contended { label, source }
    } else if *state == SqlState::QUERY_CANCELED || *state == SqlState::LOCK_NOT_AVAILABLE {
        Error::Timeout { label, source: Some(source) }
    } else if *state == SqlState::UNIQUE_VIOLATION || *state == SqlState::EXCLUSION_VIOLATION {
        let constraint = source.as_db_error().and_then(|it| it.constraint()).unwrap_or_default().to_owned();
        Error::Conflict { label, constraint, source }
    } else if is_session_end(state) {
        Error::Unavailable { label, source: source.into() }
    } else {
        Error::Query { label, source }
    }
}

/// A write outside of a transaction commits by itself: without its answer nothing is known.
pub(super) fn of_autocommit(error: Error) -> Error {
    match error {
        Error::Unavailable { label, source } => {
            let source = source.downcast::<tokio_postgres::Error>().ok().map(|it| *it);
            Error::CommitUnknown { label, source }
        }
        error => error,
    }
}

pub(super) fn of_pool(label: &'static str, source: PoolError) -> Error {
    match source {
        PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Error::Busy { label },
        source => Error::Unavailable { label, source: source.into() },
    }
}

pub(super) fn exactly_one(label: &'static str, rows: Vec<Row>) -> Result<Row, Error> {
    let count = rows.len();
    at_most_one(label, rows)?.ok_or(Error::RowCount { label, count })
}

pub(super) fn at_most_one(label: &'static str, mut rows: Vec<Row>) -> Result<Option<Row>, Error> {
    if rows.len() > 1 {
        return Err(Error::RowCount { label, count: rows.len() });
    }
    Ok(rows.pop())
}

/// Serialization failure and deadlock: Postgres rolled back and asks to begin again.
fn is_serialization_failure(state: &SqlState) -> bool {
    *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
}

/// The server ended the session (shutdown, crash of a neighbor, idle limit), or has no place for one.
fn is_session_end(state: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::TOO_MANY_CONNECTIONS,
    ]
    .contains(state)
        || state.code().starts_with("08")
}

fn has_io_cause(error: &tokio_postgres::Error) -> bool {
    StdError::source(error).is_some_and(|cause| cause.is::<std::io::Error>())
}
