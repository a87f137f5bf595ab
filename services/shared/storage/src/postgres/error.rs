//! Errors of the Postgres client, distinguished by what the caller can do about them.

use std::error::Error as StdError;

use deadpool_postgres::PoolError;
use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::FromSql;

/// A failed statement or transaction. `label` is the name that the caller gave it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection could be opened, or the connection broke. Nothing was committed.
    #[error("postgres is unavailable for {label}")]
    Unavailable {
        /// Label of the call.
        label: &'static str,
        /// Error of the pool or the driver.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// All pooled connections stayed in use for `acquire_timeout`.
    #[error("no postgres connection became free for {label}")]
    Busy {
        /// Label of the call.
        label: &'static str,
    },
    /// The call's deadline, the statement timeout or the lock timeout passed. Nothing was committed.
    #[error("{label} timed out")]
    Timeout {
        /// Label of the call.
        label: &'static str,
        /// Error of Postgres, if it ended the statement; `None` if the deadline did.
        #[source]
        source: Option<tokio_postgres::Error>,
    },
    /// A unique or exclusion constraint refused the row.
    #[error("{label} conflicts with an existing row ({constraint})")]
    Conflict {
        /// Label of the call.
        label: &'static str,
        /// Name of the constraint.
        constraint: String,
        /// Error that Postgres reported.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Every attempt of the transaction lost a race against another transaction.
    #[error("{label} lost every race against concurrent transactions")]
    Contended {
        /// Label of the call.
        label: &'static str,
        /// Error of the last attempt.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The reply to the commit was lost, so the commit may or may not have happened. Callers may repeat the step only
    /// because every step is idempotent.
    #[error("the commit of {label} has an unknown outcome")]
    CommitUnknown {
        /// Label of the call.
        label: &'static str,
        /// Error of the driver; `None` if the deadline passed.
        #[source]
        source: Option<tokio_postgres::Error>,
    },
    /// The work returned `Ok` although a statement had failed or been dropped. Postgres would roll back silently, so
    /// the client rolls back and reports it.
    #[error("{label} was rolled back: a statement in it had failed")]
    Aborted {
        /// Label of the call.
        label: &'static str,
    },
    /// The statement is invalid, or violates a check or foreign key constraint.
    #[error("query failed in {label}")]
    Query {
        /// Label of the call.
        label: &'static str,
        /// Error that Postgres reported.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The statement returned an unexpected number of rows.
    #[error("{label} returned {count} rows instead of one")]
    RowCount {
        /// Label of the call.
        label: &'static str,
        /// Number of rows returned.
        count: usize,
    },
    /// A column is missing, has another type, or has a value that its reader refuses (see [`row`](super::row)).
    #[error("failed to read column {name}")]
    Column {
        /// Name of the column.
        name: &'static str,
        /// Error of the reader.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A value for COPY does not fit its column.
    #[error("failed to encode column {column} of a row")]
    Row {
        /// Index of the column, from 0.
        column: usize,
        /// Error of the encoder.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A setting is out of range.
    #[error("invalid postgres settings: {message}")]
    Config {
        /// Violated rule, for the message.
        message: &'static str,
    },
    /// The connection string cannot be parsed.
    #[error("the postgres url is malformed")]
    Url,
    /// The schema's name would need quoting.
    #[error("schema name `{schema}` must be lower case and need no quotes")]
    Schema {
        /// Refused name of the schema.
        schema: String,
    },
}

impl Error {
    /// Returns the name of the violated unique or exclusion constraint; `None` for other errors.
    #[must_use]
    pub fn conflict(&self) -> Option<&str> {
        match self {
            Self::Conflict { constraint, .. } => Some(constraint),
            _ => None,
        }
    }

    /// Returns true if nothing was committed and a retry may succeed: after a lost race, or if the connection broke
    /// before the commit was sent.
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
            // Stores catch the conflicts that mean something to a caller, by constraint name.
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

/// Classifies the driver's error of a statement.
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

/// Turns a lost connection into `CommitUnknown`: outside of a transaction, a statement commits by itself.
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

/// Returns true for a serialization failure or a deadlock. Postgres has rolled back and expects a retry.
fn is_serialization_failure(state: &SqlState) -> bool {
    *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
}

/// Returns true if the server ended the session (shutdown, crash of another backend, idle limit) or has no free
/// connection.
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
