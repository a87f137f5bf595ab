//! Statuses on their way out. What tonic answers by itself, and what a handler answers as INTERNAL or UNKNOWN, leaves
//! with a reason and without internals. Any other status is the handler's word, made by `error::to_status`.

use http::HeaderMap;
use tonic::{Code, Status};

use super::refusal::Refusal;
use crate::error::InvalidFields;

/// How tonic begins its message when the bytes of a request are not the message they should be. It calls that
/// INTERNAL; it is the caller's mistake, and must not be logged as one of ours: anybody can make as many as they like.
const UNREADABLE_PREFIXES: [&str; 4] = [
    "failed to decode Protobuf message",
    "Missing request message",
    "Unexpected EOF decoding stream",
    "protocol error: received message with",
];

/// How it begins when a message announces more bytes than it takes.
const TOO_LARGE_PREFIX: &str = "Error, decoded message length too large";

/// What it takes at most; the generated servers' own setting.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How it begins when a request is compressed. UNIMPLEMENTED is what gRPC asks for here, and the method does exist.
const COMPRESSED_PREFIX: &str = "Content is compressed with";

/// The code of an answer whose status stands in `headers` (or trailers). A status without a reason gets one.
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

/// Replaces the status in `headers` by `status`.
pub(super) fn write(status: &Status, headers: &mut HeaderMap) {
    for name in [Status::GRPC_STATUS, Status::GRPC_MESSAGE, Status::GRPC_STATUS_DETAILS] {
        headers.remove(name);
    }
    if let Err(error) = status.add_header(headers) {
        tracing::error!(%error, "failed to write a status");
    }
}

/// The status to send instead of one that has no reason; none to send it as it is.
fn with_reason(code: Code, message: &str) -> Option<Status> {
    match code {
        Code::Unimplemented if message.starts_with(COMPRESSED_PREFIX) => None,
        // The generated default of a method that no one has written yet.
        Code::Unimplemented => Some(Refusal::MethodNotImplemented.into()),
        Code::Internal | Code::Unknown
            if UNREADABLE_PREFIXES.iter().any(|start| message.starts_with(start)) =>
        {
            Some(InvalidFields::unreadable().into())
        }
        Code::Internal | Code::Unknown => {
            tracing::error!(%code, message, "a handler answered with a status that has no reason");
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
