//! The trait of all errors that reach a caller, and the only function that turns them into a gRPC status.
//!
//! A service's error has a kind and a reason (from the contract). [`to_status`] adds the `google.rpc` details that a client
//! can act on. The text of an internal failure goes to the log and never to the caller.
//!
//! Each error type that a handler returns has these lines beside it, so that the handler can use `?`. A blanket
//! implementation is not possible, because both `From` and `Status` are foreign:
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

/// `ErrorInfo.domain` of every reason.
pub const DOMAIN: &str = "onsale.dev";

/// Retry delay of the kinds Limited and Unavailable for errors that name none.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// The kinds of failure that differ in the caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed; change it. INVALID_ARGUMENT.
    Invalid,
    /// The caller is unknown; sign in. UNAUTHENTICATED.
    Unauthenticated,
    /// The caller is known but not permitted. PERMISSION_DENIED.
    Forbidden,
    /// The resource does not exist, or not for this caller. NOT_FOUND.
    NotFound,
    /// Another request has created the resource already. ALREADY_EXISTS.
    AlreadyExists,
    /// The state forbids it: sold out, expired, paused. FAILED_PRECONDITION.
    State,
    /// A concurrent call won; restart the step. ABORTED.
    Contended,
    /// The caller's quota or the server's capacity is used up; retry later. RESOURCE_EXHAUSTED.
    Limited,
    /// The deadline passed. DEADLINE_EXCEEDED.
    Timeout,
    /// A dependency is unreachable; the same call may succeed within seconds. UNAVAILABLE.
    Unavailable,
    /// This version does not serve the method. UNIMPLEMENTED.
    Unimplemented,
    /// A fault on the server's side. INTERNAL.
    Internal,
}

impl Kind {
    /// Returns the gRPC code of this kind.
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

/// Reason of a failure in UPPER_SNAKE: a value of a contract's `ErrorReason` without the enum's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// Creates a reason from the value's full name, as `as_str_name()` returns it.
    #[must_use]
    pub fn from_proto(name: &'static str) -> Self {
        Self(name.strip_prefix("ERROR_REASON_").unwrap_or(name))
    }

    /// The reason as it is sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// Converts the reasons that all services share.
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

/// A limit that the caller has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaViolation {
    /// Owner of the limit, for example `customer:0190…`.
    pub subject: String,
    /// The limit and its maximum, as text for a person.
    pub description: String,
}

/// An error that may reach a caller.
pub trait ServiceError: Error + Send + Sync + 'static {
    /// Returns the kind of failure, which decides the gRPC code.
    fn kind(&self) -> Kind;

    /// Returns the reason from the contract's `ErrorReason`.
    fn reason(&self) -> Reason;

    /// Returns facts for programs, for example the ids of the units that are taken.
    fn metadata(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns all malformed fields.
    fn violations(&self) -> &[Violation] {
        &[]
    }

    /// Returns the time after which a retry makes sense. `None`: 1 s for Limited and Unavailable, else no hint.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Returns the limit that was reached, if there is one.
    fn quota(&self) -> Option<QuotaViolation> {
        None
    }
}

/// Converts `error` to the caller's status. Logs Internal as ERROR and Unavailable as WARN with the whole chain of causes;
/// other kinds are the caller's mistakes and are not logged here.
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

/// Builds a status with a message that any caller may see.
pub(crate) fn status(error: &dyn ServiceError, message: String) -> Status {
    Status::with_error_details(error.kind().code(), message, details(error))
}

/// Formats an error and all its causes on one line.
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
