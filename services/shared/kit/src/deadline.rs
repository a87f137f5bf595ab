//! The moment by which a call must be answered, and how it travels.
//!
//! The server layer reads `grpc-timeout`, makes a [`Deadline`] and runs the handler inside [`Deadline::scope`]; whatever
//! the handler calls (stores, neighbours, the batcher) finds it with [`Deadline::current`]. A client channel sends what
//! remains, less [`Deadline::for_call`]'s margin, as the `grpc-timeout` of its own call, so that every hop ends before
//! the one that waits for it. A deadline is a point in time, not a span: passing it on cannot lengthen it.
//!
//! It is local to the running task: a task started from a handler does not have it, and must be given it by value.

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

/// The least time kept back from an outgoing call, for the way of its answer and for our own.
pub const CALL_MARGIN_MIN: Duration = Duration::from_millis(5);

/// The share of the remaining time kept back from an outgoing call: one part of this many.
const CALL_MARGIN_SHARE: u32 = 20;

/// Stands for "no end in sight" where a span is too long to add to the clock: about 30 years, as tokio does.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

tokio::task_local! {
    static CURRENT: Deadline;
}

/// The moment by which a call must be answered. `a.min(b)` is the earlier of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

/// The deadline passed before the work was done.
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
    /// The deadline `span` from now. A span too long for the clock ends in about 30 years.
    #[must_use]
    pub fn after(span: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(span.min(FAR_FUTURE)).unwrap_or(now))
    }

    /// The deadline at `instant`.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The deadline of the call this task is answering; none outside of a call.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|deadline| *deadline).ok()
    }

    /// The deadline of the running call, and in any case no later than `span_max` from now.
    #[must_use]
    pub fn current_or_after(span_max: Duration) -> Self {
        let latest = Self::after(span_max);
        Self::current().map_or(latest, |current| current.min(latest))
    }

    /// The moment itself, for timers.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// The time left; zero once it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The deadline for a call made on behalf of this one: earlier by a twentieth of what remains, at least by
    /// [`CALL_MARGIN_MIN`]. `None` when that leaves nothing: the call must not be made, its answer would be too late.
    #[must_use]
    pub fn for_call(self) -> Option<Self> {
        let remaining = self.remaining();
        let margin = CALL_MARGIN_MIN.max(remaining / CALL_MARGIN_SHARE);
        if remaining <= margin { None } else { self.0.checked_sub(margin).map(Self) }
    }

    /// Runs `work` with this deadline as [`Deadline::current`]; inside another scope the earlier of the two counts, so
    /// that no callee can give itself more time than its caller has. Does not end `work`: see [`Deadline::bound`].
    pub fn scope<F: Future>(self, work: F) -> Scoped<F> {
        Scoped { deadline: self, work }
    }

    /// Runs `work` until it is done or the deadline passes; then it is dropped. With the deadline already past, `work`
    /// is not even begun.
    pub fn bound<F: Future>(self, work: F) -> Bound<F> {
        Bound { deadline: self, is_begun: false, work: tokio::time::timeout_at(self.0, work) }
    }
}

// Both are types and not `async fn`s: those keep what they are given twice, once as it came and once as it is awaited, and
// they stand around each other and around the largest futures there are.
pin_project! {
    /// Work with a deadline of its own: [`Deadline::scope`].
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
    /// Work that ends with its deadline: [`Deadline::bound`].
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
    async fn remaining_shrinks_with_the_clock_and_ends_at_zero() {
        let deadline = Deadline::after(SECOND);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(deadline.remaining(), Duration::from_millis(600));
        assert!(!deadline.is_past());
        tokio::time::advance(SECOND).await;
        assert_eq!(deadline.remaining(), Duration::ZERO);
        assert!(deadline.is_past());
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_is_seen_inside_and_only_inside() {
        assert_eq!(Deadline::current(), None);
        let deadline = Deadline::after(SECOND);
        assert_eq!(deadline.scope(async { Deadline::current() }).await, Some(deadline));
        assert_eq!(Deadline::current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_inner_scope_cannot_lengthen_the_outer_one() {
        let outer = Deadline::after(SECOND);
        let longer = Deadline::after(SECOND * 5);
        let seen = outer.scope(longer.scope(async { Deadline::current() })).await;
        assert_eq!(seen, Some(outer));
        let shorter = Deadline::after(SECOND / 2);
        let seen = outer.scope(shorter.scope(async { Deadline::current() })).await;
        assert_eq!(seen, Some(shorter));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_keeps_back_a_twentieth_and_at_least_the_smallest_margin() {
        let long = Deadline::after(SECOND);
        assert_eq!(long.for_call().unwrap().remaining(), Duration::from_millis(950));
        let short = Deadline::after(Duration::from_millis(20));
        assert_eq!(short.for_call().unwrap().remaining(), Duration::from_millis(15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_refused_when_the_margin_eats_what_is_left() {
        assert_eq!(Deadline::after(CALL_MARGIN_MIN).for_call(), None);
        assert_eq!(Deadline::after(Duration::ZERO).for_call(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn bound_ends_work_at_the_deadline_and_does_not_begin_it_after() {
        let deadline = Deadline::after(SECOND);
        assert_eq!(deadline.bound(std::future::pending::<()>()).await, Err(DeadlinePassed));
        assert!(deadline.is_past());
        let mut begun = false;
        let result = deadline.bound(async { begun = true }).await;
        assert_eq!(result, Err(DeadlinePassed));
        assert!(!begun);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_span_does_not_overflow_the_clock() {
        assert!(Deadline::after(Duration::MAX).remaining() > Duration::from_secs(365 * 24 * 60 * 60));
    }

    #[tokio::test(start_paused = true)]
    async fn the_current_deadline_is_capped_by_the_default() {
        assert_eq!(Deadline::current_or_after(SECOND), Deadline::after(SECOND));
        let outer = Deadline::after(SECOND / 2);
        assert_eq!(outer.scope(async { Deadline::current_or_after(SECOND) }).await, outer);
    }
}
