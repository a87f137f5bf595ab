//! The circuit breaker for Redis. After a command on one part (the keys of a line, or a channel) gets no answer, further
//! commands on that part fail at once for 1 s, so that callers do not each wait for the 500 ms timeout.

use std::{future::Future, time::Duration};

use onsale_kit::{
    breaker::{Breaker, Rejection},
    deadline::Deadline,
};
use onsale_storage::redis::{Command, Error, FromRedisValue, Redis};
use onsale_types::EventId;

/// Longest time that a caller waits for Redis before it does without: the truth is in Postgres.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which commands on a part fail at once after one got no answer.
const OPEN_DURATION: Duration = Duration::from_secs(1);

/// The keys or the channel that become unavailable together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// All keys and channels of one line.
    Line(EventId),
    /// The channel that wakes the leader.
    Wake,
    /// The channel `queue_events`.
    External,
}

/// Runs a command with the timeout but without a breaker.
pub(crate) async fn with_timeout<T: FromRedisValue>(redis: &Redis, command: Command) -> Result<T, Error> {
    Deadline::after(TIMEOUT).scope(redis.run(command)).await
}

/// Returns a breaker with the timeout and the open time of Queue.
pub(crate) fn breaker() -> Breaker<Part> {
    Breaker::new(TIMEOUT, OPEN_DURATION)
}

/// Runs `work` under the timeout, or fails at once while the breaker of `part` is open.
pub(crate) async fn guard<T>(
    breaker: &Breaker<Part>,
    part: Part,
    command: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let is_outage = |error: &Error| {
        matches!(error, Error::Deadline { .. } | Error::Unavailable { .. } | Error::Unknown { .. })
    };
    match breaker.call(part, is_outage, work).await {
        Ok(answer) => Ok(answer),
        Err(Rejection::Failed(error)) => Err(error),
        Err(Rejection::Open) => Err(Error::Deadline { command }),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn open_breaker_fails_fast_after_the_first_timeout() {
        let breaker = breaker();
        let silent = || std::future::pending::<Result<(), Error>>();
        let begin = Instant::now();
        for _ in 0..100 {
            let bounded = Deadline::after(TIMEOUT);
            let work =
                async { bounded.bound(silent()).await.unwrap_or(Err(Error::Deadline { command: "x" })) };
            assert!(guard(&breaker, Part::Wake, "x", work).await.is_err());
        }
        assert_eq!(begin.elapsed(), TIMEOUT);
        // Another part is closed, and this one closes again after its open time.
        assert!(guard(&breaker, Part::External, "x", async { Ok(()) }).await.is_ok());
        tokio::time::advance(OPEN_DURATION).await;
        assert!(guard(&breaker, Part::Wake, "x", async { Ok(()) }).await.is_ok());
    }
}
