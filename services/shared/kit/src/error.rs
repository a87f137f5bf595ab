//! One trait for every error a caller can meet, and the one function that turns it into a gRPC status.
//!
//! A service's error says what kind of failure it is and why (the reason, from the contract); [`to_status`] adds the
//! `google.rpc` details a client can act on. The text of an internal failure goes to the log and never to the caller.
//!
//! So that handlers can use `?`, each error type that reaches one has these three lines beside it (a blanket
//! implementation is not possible: neither `From` nor `Status` is ours):
//!
//! ```
//! # use onsale_kit::error::{InvalidFields, Kind, Reason, ServiceError, to_status};
//! # #[derive(Debug, thiserror::Error)]
//! # #[error("sold out")]
//! # struct CreateClaimError;
//! # impl ServiceError for CreateClaimError {
//! #     fn kind(&self) -> Kind { Kind::State }
//! #     fn reason(&self) -> Reason { Reason::from_proto("ERROR_REASON_SOLD_OUT") }
//! # }
//! impl From<CreateClaimError> for tonic::Status {
//!     fn from(error: CreateClaimError) -> Self {
//!         to_status(&error)
//!     }
//! }
//! ```

use std::{collections::HashMap, error::Error, fmt, time::Duration};

use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub use violations::{InvalidFields, Violation, Violations};

mod violations;

/// The domain of every reason: whose enum it is from.
pub const DOMAIN: &str = "onsale.dev";

/// When to come back, for errors that waiting helps and that do not say when themselves.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// The few ways a call can fail, as far as a caller's next step is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed: change it. INVALID_ARGUMENT.
    Invalid,
    /// We do not know who calls: sign in. UNAUTHENTICATED.
    Unauthenticated,
    /// We know, and they may not. PERMISSION_DENIED.
    Forbidden,
    /// There is no such thing, or not for this caller. NOT_FOUND.
    NotFound,
    /// It exists already, made by another request. ALREADY_EXISTS.
    AlreadyExists,
    /// Not in this state: sold out, expired, paused. FAILED_PRECONDITION.
    State,
    /// Lost against a concurrent call: begin the step again. ABORTED.
    Contended,
    /// Too much: of the caller's quota, or for us; come back later. RESOURCE_EXHAUSTED.
    Limited,
    /// The time ran out. DEADLINE_EXCEEDED.
    Timeout,
    /// Something needed cannot be reached; the same call may work soon. UNAVAILABLE.
    Unavailable,
    /// Not served by this version. UNIMPLEMENTED.
    Unimplemented,
    /// A fault on our side. INTERNAL.
    Internal,
}

impl Kind {
    /// The gRPC code of this kind.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Invalid => Code::InvalidArgument,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Forbidden => Code::PermissionDenied,
            Self::NotFound => Code::NotFound,
            Self::AlreadyExists => Code::AlreadyExists,
            Self::State => Code::FailedPrecondition,
            Self::Contended => Code::Aborted,
            Self::Limited => Code::ResourceExhausted,
            Self::Timeout => Code::DeadlineExceeded,
            Self::Unavailable => Code::Unavailable,
            Self::Unimplemented => Code::Unimplemented,
            Self::Internal => Code::Internal,
        }
    }
}

/// Why a call failed, in UPPER_SNAKE: the name of a value of a contract's `ErrorReason`, without its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// From the name of the enum's value, as `as_str_name()` gives it.
    #[must_use]
    pub fn from_proto(name: &'static str) -> Self {
        Self(name.strip_prefix("ERROR_REASON_").unwrap_or(name))
    }

    /// As it stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// The reasons every service shares.
impl From<ErrorReason> for Reason {
    fn from(reason: ErrorReason) -> Self {
        Self::from_proto(reason.as_str_name())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// A limit that was reached, for the caller to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaViolation {
    /// Whose limit it is, e.g. `customer:0190…`.
    pub subject: String,
    /// Which limit, and how much is allowed.
    pub description: String,
}

/// An error that may reach a caller.
pub trait ServiceError: Error + Send + Sync + 'static {
    /// What kind of failure it is.
    fn kind(&self) -> Kind;

    /// Why, from the contract's `ErrorReason`.
    fn reason(&self) -> Reason;

    /// Facts a program can use, e.g. the ids of the units that are taken.
    fn metadata(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The malformed fields, all of them.
    fn violations(&self) -> &[Violation] {
        &[]
    }

    /// When it is worth trying again. Kinds Limited and Unavailable get a default when this is none.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// The limit that was reached.
    fn quota(&self) -> Option<QuotaViolation> {
        None
    }
}

/// The status a caller gets for `error`. Logs what asks for a human (Internal) or an eye (Unavailable), with the whole
/// chain; the caller's own mistakes are not logged here.
#[must_use]
pub fn to_status(error: &dyn ServiceError) -> Status {
    match error.kind() {
        Kind::Internal => {
            tracing::error!(reason = %error.reason(), error = %Chain(error), "call failed");
            status(error, "internal error".to_owned())
        }
        Kind::Unavailable => {
            tracing::warn!(reason = %error.reason(), error = %Chain(error), "call failed");
            status(error, "temporarily unavailable, try again".to_owned())
        }
        Kind::Invalid
        | Kind::Unauthenticated
        | Kind::Forbidden
        | Kind::NotFound
        | Kind::AlreadyExists
        | Kind::State
        | Kind::Contended
        | Kind::Limited
        | Kind::Timeout
        | Kind::Unimplemented => status(error, error.to_string()),
    }
}

/// The status alone, with a message that may be shown to anybody.
pub(crate) fn status(error: &dyn ServiceError, message: String) -> Status {
    Status::with_error_details(error.kind().code(), message, details(error))
}

/// Prints an error with everything that caused it, on one line.
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(formatter, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

fn details(error: &dyn ServiceError) -> ErrorDetails {
    let metadata: HashMap<_, _> =
        error.metadata().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut details = ErrorDetails::new();
    details.set_error_info(error.reason().as_str(), DOMAIN, metadata);
    for violation in error.violations() {
        details.add_bad_request_violation(&violation.field, &violation.description);
    }
    if let Some(delay) = error.retry_after().or(retry_after_default(error.kind())) {
        details.set_retry_info(Some(delay));
    }
    if let Some(quota) = error.quota() {
        details.add_quota_failure_violation(quota.subject, quota.description);
    }
    details
}

fn retry_after_default(kind: Kind) -> Option<Duration> {
    matches!(kind, Kind::Limited | Kind::Unavailable).then_some(RETRY_AFTER_DEFAULT)
}
