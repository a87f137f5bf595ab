//! Limits on concurrent calls and connections. Work above a limit is refused immediately: a queue would only make every
//! caller wait for responses that come too late.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Hands out at most `permits_max` permits (exempt callers may exceed it). Dropping a permit returns it.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    in_use: AtomicUsize,
    permits_max: usize,
}

impl ConcurrencyLimit {
    pub(crate) fn new(permits_max: usize) -> Arc<Self> {
        Arc::new(Self { in_use: AtomicUsize::new(0), permits_max })
    }

    /// Returns a permit, or `None` if all are in use.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        // Adds first and returns an excess permit by dropping it: one atomic step in the common case.
        let permit = Permit { limit: Arc::clone(self) };
        let before = self.in_use.fetch_add(1, Ordering::Relaxed);
        (before < self.permits_max).then_some(permit)
    }

    /// Returns a permit even if all are in use, for health and reflection calls, which are never refused.
    pub(crate) fn acquire_exempt(self: &Arc<Self>) -> Permit {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Permit { limit: Arc::clone(self) }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

/// One unit of a [`ConcurrencyLimit`].
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
    fn no_more_than_permits_max_are_handed_out() {
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
