//! Waiting for a condition instead of sleeping for luck.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How often the condition is looked at: short, so that tests are quick; not zero, so that others get to run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` holds, at most for `bound`.
///
/// # Panics
/// When it does not hold in time; the message has `what`.
#[expect(clippy::panic, reason = "a test fails by panicking, and this says what it waited for")]
#[track_caller]
pub fn wait_until<F>(
    what: &str,
    bound: Duration,
    mut condition: impl FnMut() -> F,
) -> impl Future<Output = ()>
where
    F: Future<Output = bool>,
{
    let caller = std::panic::Location::caller();
    async move {
        // The machine's clock, not the runtime's: a test with a paused clock must still end.
        let begin = Instant::now();
        while !condition().await {
            if begin.elapsed() >= bound {
                panic!("waited {bound:?} in vain, at {caller}: {what}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
