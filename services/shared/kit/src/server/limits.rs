//! How many calls may be under way at once. Beyond that they are turned away at once: a queue would only make
//! everybody wait for answers that come too late.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A number of places, given out and returned.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicUsize,
    places_max: usize,
}

impl Places {
    pub(crate) fn new(places_max: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), places_max })
    }

    /// A place, unless all are taken. It is returned when it is dropped.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        // Taken first and returned when it was one too many: one atomic step in the common case.
        let place = Place { places: Arc::clone(self) };
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        (before < self.places_max).then_some(place)
    }

    /// A place even when all are taken, for the few callers that must never be turned away.
    pub(crate) fn take_beyond(self: &Arc<Self>) -> Place {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Place { places: Arc::clone(self) }
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// One place of [`Places`].
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_given_than_there_are_and_each_returns() {
        let places = Places::new(2);
        let first = places.take().expect("a place is free");
        let second = places.take();
        assert!(second.is_some());
        assert!(places.take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert!(places.take().is_some());
        drop(second);
        assert_eq!(places.taken(), 0);
    }
}
