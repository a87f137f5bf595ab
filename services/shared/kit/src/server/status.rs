//! Statuses of responses. A status of tonic's own, and an INTERNAL or UNKNOWN without details from a handler, gets a reason
//! and loses its message. All other statuses pass unchanged: `error::to_status` made them.

use http::HeaderMap;
use tonic::{Code, Status};

use super::refusal::Refusal;
use crate::error::InvalidFields;

/// Beginnings of tonic's messages for a request whose bytes are not the expected message. tonic reports INTERNAL, but it is
/// the caller's mistake: any caller can cause any number of them, so they must not be logged as errors of ours.
const UNREADABLE_PREFIXES: [&str; 4] = [
    "failed to decode Protobuf message",
    "Missing request message",
    "Unexpected EOF decoding stream",
    "protocol error: received message with",
];

/// Beginning of tonic's message for a message that announces more bytes than the generated server accepts.
const TOO_LARGE_PREFIX: &str = "Error, decoded message length too large";

/// The generated servers' own limit, tonic's default of 4 MiB.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Beginning of tonic's message for a compressed request. Its UNIMPLEMENTED is what gRPC prescribes, and the method exists.
const COMPRESSED_PREFIX: &str = "Content is compressed with";

/// Returns the code of the status in `headers` (or trailers), OK if there is none. Adds a reason to a status without one.
pub(super) fn normalize(headers: &mut HeaderMap) -> Code {
    let Some(code) = headers.get(Status::GRPC_STATUS).map(|value| Code::from_bytes(value.as_bytes())) else {
        return Code::Ok;
    };
    if code == Code::Ok || headers.contains_key(Status::GRPC_STATUS_DETAILS) {
        return code;
    }
    let message =
        Status::from_header_map(headers).map(|status| status.message().to_owned()).unwrap_or_default();
    let Some(status) = with_reason(code, &message) else { return code };
    write(&status, headers);
    status.code()
}

/// Replaces the status in `headers`.
pub(super) fn write(status: &Status, headers: &mut HeaderMap) {
    for name in [Status::GRPC_STATUS, Status::GRPC_MESSAGE, Status::GRPC_STATUS_DETAILS] {
        headers.remove(name);
    }
    if let Err(error) = status.add_header(headers) {
        tracing::error!(%error, "failed to encode a status");
    }
}

/// Returns the status to send instead of one without a reason. `None` keeps it.
fn with_reason(code: Code, message: &str) -> Option<Status> {
    match code {
        Code::Unimplemented if message.starts_with(COMPRESSED_PREFIX) => None,
        // The default body of a generated method that the service does not implement yet.
        Code::Unimplemented => Some(Refusal::MethodNotImplemented.into()),
        Code::Internal | Code::Unknown
            if UNREADABLE_PREFIXES.iter().any(|start| message.starts_with(start)) =>
        {
            Some(InvalidFields::unreadable().into())
        }
        Code::Internal | Code::Unknown => {
            tracing::error!(%code, message, "handler returned a status without a reason");
            Some(Refusal::Internal.into())
        }
        Code::OutOfRange if message.starts_with(TOO_LARGE_PREFIX) => {
            Some(Refusal::RequestTooLarge { bytes_max: MESSAGE_BYTES_MAX }.into())
        }
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => None,
    }
}
