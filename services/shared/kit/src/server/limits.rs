//! How many calls may be under way at once. Beyond that they are turned away at once: a queue would only make
//! everybody wait for answers that come too late.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A number of permits, given out and returned.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    in_use: AtomicUsize,
    permits_max: usize,
}

impl ConcurrencyLimit {
    pub(crate) fn new(permits_max: usize) -> Arc<Self> {
        Arc::new(Self { in_use: AtomicUsize::new(0), permits_max })
    }

    /// A permit, unless all are in use. It is returned when it is dropped.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        // Taken first and returned when it was one too many: one atomic step in the common case.
        let permit = Permit { limit: Arc::clone(self) };
        let before = self.in_use.fetch_add(1, Ordering::Relaxed);
        (before < self.permits_max).then_some(permit)
    }

    /// A permit even when all are in use, for the few callers that must never be turned away.
    pub(crate) fn acquire_exempt(self: &Arc<Self>) -> Permit {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Permit { limit: Arc::clone(self) }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

/// One permit of [`ConcurrencyLimit`].
#[derive(Debug)]
pub(crate) struct Permit {
    limit: Arc<ConcurrencyLimit>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_the_maximum_of_permits_is_out_at_a_time() {
        let limit = ConcurrencyLimit::new(2);
        let first = limit.try_acquire().expect("a permit is free");
        let second = limit.try_acquire();
        assert!(second.is_some());
        assert!(limit.try_acquire().is_none());
        assert_eq!(limit.in_use(), 2);
        drop(first);
        assert!(limit.try_acquire().is_some());
        drop(second);
        assert_eq!(limit.in_use(), 0);
    }
}
