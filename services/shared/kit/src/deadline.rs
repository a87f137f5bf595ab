//! Deadlines of calls.
//!
//! The server reads `grpc-timeout`, creates a [`Deadline`] and runs the handler inside [`Deadline::scope`]. Stores, client
//! channels and the batcher read it with [`Deadline::current`]. A channel sends the remaining time, less the margin of
//! [`Deadline::for_call`], as the `grpc-timeout` of its own call, so that every call ends before the one that waits for it.
//! A deadline is a point in time and not a duration, so passing it on cannot extend it.
//!
//! It belongs to the running task. A task that a handler spawns does not inherit it; pass it by value.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use onsale_proto::r#type::v1::ErrorReason;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Timeout};

use crate::error::{Kind, Reason, ServiceError};

/// Smallest margin of an outgoing call, for the return of its response and for our own work.
const CALL_MARGIN_MIN: Duration = Duration::from_millis(5);

/// Margin of an outgoing call: one part of this many of the remaining time.
const CALL_MARGIN_SHARE: u32 = 20;

/// Longest time until a deadline, about 30 years as in tokio. Longer durations would overflow the clock.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

tokio::task_local! {
    static CURRENT: Deadline;
}

/// A point in time by which a call must be answered. `a.min(b)` is the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

/// The error of work that its deadline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed")]
pub struct DeadlinePassed;

impl ServiceError for DeadlinePassed {
    fn kind(&self) -> Kind {
        Kind::Timeout
    }

    fn reason(&self) -> Reason {
        ErrorReason::DeadlineExceeded.into()
    }
}

impl Deadline {
    /// Creates the deadline `span` from now, at most about 30 years away.
    #[must_use]
    pub fn after(span: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(span.min(FAR_FUTURE)).unwrap_or(now))
    }

    /// Returns the deadline of the running call, `None` outside of a call.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|deadline| *deadline).ok()
    }

    /// Returns the deadline of the running call, but at most `span_max` from now.
    #[must_use]
    pub fn current_or_after(span_max: Duration) -> Self {
        let latest = Self::after(span_max);
        Self::current().map_or(latest, |current| current.min(latest))
    }

    /// The point in time, for timers.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Returns the remaining time, zero once the deadline has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns true if no time remains.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the deadline for an outgoing call: earlier by a twentieth of the remaining time, at least by 5 ms. `None`
    /// means that no time would be left, and that the call must not be made.
    #[must_use]
    pub fn for_call(self) -> Option<Self> {
        let remaining = self.remaining();
        let margin = CALL_MARGIN_MIN.max(remaining / CALL_MARGIN_SHARE);
        if remaining <= margin { None } else { self.0.checked_sub(margin).map(Self) }
    }

    /// Runs `work` with this deadline as [`Deadline::current`]. Inside another scope the earlier deadline counts, so that
    /// no callee can exceed its caller's time. Does not end `work`: see [`Deadline::bound`].
    pub fn scope<F: Future>(self, work: F) -> Scoped<F> {
        Scoped { deadline: self, work }
    }

    /// Runs `work` until it is done, or drops it at the deadline. Does not start `work` if the deadline has passed.
    pub fn bound<F: Future>(self, work: F) -> Bound<F> {
        Bound { deadline: self, is_begun: false, work: tokio::time::timeout_at(self.0, work) }
    }
}

// Hand-written futures: an `async fn` stores its argument twice, as received and as awaited, and these two are nested
// around the largest futures of the system.
pin_project! {
    /// The future of [`Deadline::scope`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Scoped<F> {
        deadline: Deadline,
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let earlier = Deadline::current().map_or(*this.deadline, |outer| outer.min(*this.deadline));
        CURRENT.sync_scope(earlier, || this.work.poll(context))
    }
}

pin_project! {
    /// The future of [`Deadline::bound`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Bound<F> {
        deadline: Deadline,
        is_begun: bool,
        #[pin]
        work: Timeout<F>,
    }
}

impl<F: Future> Future for Bound<F> {
    type Output = Result<F::Output, DeadlinePassed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if !std::mem::replace(this.is_begun, true) && this.deadline.is_past() {
            return Poll::Ready(Err(DeadlinePassed));
        }
        this.work.poll(context).map_err(|_elapsed| DeadlinePassed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn remaining_time_shrinks_to_zero() {
        let deadline = Deadline::after(SECOND);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(deadline.remaining(), Duration::from_millis(600));
        assert!(!deadline.is_past());
        tokio::time::advance(SECOND).await;
        assert_eq!(deadline.remaining(), Duration::ZERO);
        assert!(deadline.is_past());
    }

    #[tokio::test(start_paused = true)]
    async fn scope_sets_the_deadline_of_its_work_only() {
        assert_eq!(Deadline::current(), None);
        let deadline = Deadline::after(SECOND);
        assert_eq!(deadline.scope(async { Deadline::current() }).await, Some(deadline));
        assert_eq!(Deadline::current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn inner_scope_cannot_extend_the_outer_one() {
        let outer = Deadline::after(SECOND);
        let longer = Deadline::after(SECOND * 5);
        let seen = outer.scope(longer.scope(async { Deadline::current() })).await;
        assert_eq!(seen, Some(outer));
        let shorter = Deadline::after(SECOND / 2);
        let seen = outer.scope(shorter.scope(async { Deadline::current() })).await;
        assert_eq!(seen, Some(shorter));
    }

    #[tokio::test(start_paused = true)]
    async fn outgoing_call_ends_a_twentieth_or_five_milliseconds_earlier() {
        let long = Deadline::after(SECOND);
        assert_eq!(long.for_call().unwrap().remaining(), Duration::from_millis(950));
        let short = Deadline::after(Duration::from_millis(20));
        assert_eq!(short.for_call().unwrap().remaining(), Duration::from_millis(15));
    }

    #[tokio::test(start_paused = true)]
    async fn no_outgoing_call_within_the_smallest_margin() {
        assert_eq!(Deadline::after(CALL_MARGIN_MIN).for_call(), None);
        assert_eq!(Deadline::after(Duration::ZERO).for_call(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn bound_ends_work_at_the_deadline_and_starts_none_after() {
        let deadline = Deadline::after(SECOND);
        assert_eq!(deadline.bound(std::future::pending::<()>()).await, Err(DeadlinePassed));
        assert!(deadline.is_past());
        let mut begun = false;
        let result = deadline.bound(async { begun = true }).await;
        assert_eq!(result, Err(DeadlinePassed));
        assert!(!begun);
    }

    #[tokio::test(start_paused = true)]
    async fn longest_duration_does_not_overflow_the_clock() {
        assert!(Deadline::after(Duration::MAX).remaining() > Duration::from_secs(365 * 24 * 60 * 60));
    }

    #[tokio::test(start_paused = true)]
    async fn current_deadline_is_capped_by_span_max() {
        assert_eq!(Deadline::current_or_after(SECOND), Deadline::after(SECOND));
        let outer = Deadline::after(SECOND / 2);
        assert_eq!(outer.scope(async { Deadline::current_or_after(SECOND) }).await, outer);
    }
}
