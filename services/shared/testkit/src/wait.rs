//! `wait_until`: tests wait for a condition with a deadline instead of sleeping for a fixed time.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Pause between two checks of the condition. It is short to keep tests fast, and not zero so that other tasks can run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` returns true, for at most `bound`.
///
/// # Panics
/// Panics if the condition is still false after `bound`; the message contains `what`.
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
        // Use the machine's clock, not the runtime's: a test with a paused clock must also time out.
        let begin = Instant::now();
        while !condition().await {
            if begin.elapsed() >= bound {
                panic!("timed out after {bound:?} waiting at {caller}: {what}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
