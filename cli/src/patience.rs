//! How a client of ours treats a failed call: what may be repeated, is, with the same request id, until its time is over.

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

/// Makes a call until it succeeds, fails for good, or `deadline` has come.
pub async fn patiently<T, F>(deadline: Deadline, call: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    retry(deadline, Backoff::new(BACKOFF), classify, call).await
}

/// Waits between the attempts of something that is repeated until it holds.
#[must_use]
pub fn backoff() -> Backoff {
    Backoff::new(BACKOFF)
}

/// Whether another attempt may help. All our calls carry a request id, so repeating one is always allowed.
#[must_use]
pub fn classify(status: &Status) -> Retry {
    match status.code() {
        Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            after(status)
        }
        // Everything our services say carries a reason; what does not is a connection that broke.
        Code::Internal if reason(status).is_none() => Retry::Later,
        // A limit that names when to come back is a request to come back.
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

/// The reason that a status carries, as the contract names it.
#[must_use]
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}
