//! Retries of failed calls, as our clients make them: a call that may succeed later is repeated with the same request id until
//! its deadline.

use std::{future::Future, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig, Retry, retry},
    deadline::Deadline,
};
use tonic::{Code, Status};
use tonic_types::StatusExt;

const BACKOFF: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(2),
    multiplier: 2,
    attempts_max: 1000,
};

/// Retries the call until it succeeds, fails permanently, or `deadline` passes.
pub async fn retry_until<T, F>(deadline: Deadline, call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    retry(deadline, Backoff::new(BACKOFF), classify, call).await
}

/// Returns the waits between attempts: at most 100 ms at first, growing to at most 2 s.
#[must_use]
pub(crate) fn backoff() -> Backoff {
    Backoff::new(BACKOFF)
}

/// Decides whether another attempt may help. All our calls carry a request id, so repeating one is always allowed.
#[must_use]
pub(crate) fn classify(status: &Status) -> Retry {
    match status.code() {
        Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            after(status)
        }
        // Errors of our services carry a reason; INTERNAL without one means that the connection broke.
        Code::Internal if reason(status).is_none() => Retry::Later,
        // With RetryInfo, a limit asks the client to repeat the call.
        Code::ResourceExhausted if status.get_details_retry_info().is_some() => after(status),
        _ => Retry::Never,
    }
}

fn after(status: &Status) -> Retry {
    match status.get_details_retry_info().and_then(|info| info.retry_delay) {
        Some(delay) => Retry::After(delay),
        None => Retry::Later,
    }
}

/// Returns the `ErrorInfo.reason` of a status.
#[must_use]
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}
