//! Queue of deliveries that returns at most one of each key at a time, in the order of arrival. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::delivery::Delivery;
use crate::redis::StreamId;

/// Deliveries of one consumer that are not acknowledged yet. A slow or failing key delays only itself.
#[derive(Debug, Default)]
pub(super) struct PerKeyQueue {
    /// Deliveries that may start: the first of their key.
    ready: VecDeque<Delivery>,
    /// Deliveries behind another of the same key. A key is present from its first delivery until its last is done.
    waiting: HashMap<String, VecDeque<Delivery>>,
    /// All deliveries, including those in progress, with their crash counts.
    held: HashMap<StreamId, u32>,
}

impl PerKeyQueue {
    /// Adds a delivery, unless the queue holds it already (a consumer can claim its own entries again).
    pub(super) fn push(&mut self, delivery: Delivery) {
        if self.held.contains_key(&delivery.id) {
            return;
        }
        self.held.insert(delivery.id, delivery.crash_count);
        match self.waiting.get_mut(&delivery.key) {
            Some(waiting) => waiting.push_back(delivery),
            None => {
                self.waiting.insert(delivery.key.clone(), VecDeque::new());
                self.ready.push_back(delivery);
            }
        }
    }

    /// Returns the next delivery to start.
    pub(super) fn next(&mut self) -> Option<Delivery> {
        self.ready.pop_front()
    }

    /// Removes a delivery that was started and makes the next one of its key ready.
    pub(super) fn done(&mut self, id: StreamId, key: &str) {
        self.held.remove(&id);
        match self.waiting.get_mut(key).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push_back(next),
            None => {
                self.waiting.remove(key);
            }
        }
    }

    /// Returns the ids of all deliveries, for the heartbeat.
    pub(super) fn held(&self) -> Vec<StreamId> {
        self.held.keys().copied().collect()
    }

    /// Groups the ids of all deliveries by crash count.
    pub(super) fn held_by_crash_count(&self) -> BTreeMap<u32, Vec<StreamId>> {
        let mut groups: BTreeMap<u32, Vec<StreamId>> = BTreeMap::new();
        for (id, crash_count) in &self.held {
            groups.entry(*crash_count).or_default().push(*id);
        }
        groups
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn delivery(position: u64, key: u8) -> Delivery {
        Delivery {
            id: StreamId::new(position, 0),
            key: key.to_string(),
            envelope: Vec::new(),
            event_id: Uuid::nil(),
            crash_count: 0,
        }
    }

    #[test]
    fn known_delivery_is_not_added_again() {
        let mut queue = PerKeyQueue::default();
        queue.push(delivery(1, 1));
        queue.push(delivery(1, 1));
        assert_eq!(queue.len(), 1);
        let first = queue.next().unwrap();
        queue.push(delivery(1, 1));
        assert!(queue.next().is_none());
        queue.done(first.id, &first.key);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn waiting_key_delays_only_itself() {
        let mut queue = PerKeyQueue::default();
        for (position, key) in [(1, 1), (2, 1), (3, 2)] {
            queue.push(delivery(position, key));
        }
        assert_eq!(queue.next().unwrap().id.millis, 1);
        assert_eq!(queue.next().unwrap().id.millis, 3);
        assert!(queue.next().is_none());
    }

    proptest! {
        #[test]
        fn each_key_is_handled_in_order_and_one_at_a_time(
            keys in prop::collection::vec(0_u8..4, 0..60),
            choices in prop::collection::vec(any::<(bool, u8)>(), 0..300),
        ) {
            let mut queue = PerKeyQueue::default();
            let mut running: Vec<Delivery> = Vec::new();
            let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            let mut arrivals = (1..).zip(&keys);
            let mut choices = choices.into_iter();
            loop {
                match choices.next() {
                    Some((true, _)) => {
                        if let Some((position, key)) = arrivals.next() {
                            queue.push(delivery(position, *key));
                        }
                    }
                    Some((false, which)) if !running.is_empty() => {
                        let finished = running.swap_remove(usize::from(which) % running.len());
                        queue.done(finished.id, &finished.key);
                    }
                    Some(_) => {}
                    None => {
                        let left = queue.len();
                        for (position, key) in arrivals.by_ref() {
                            queue.push(delivery(position, *key));
                        }
                        match running.pop() {
                            Some(finished) => queue.done(finished.id, &finished.key),
                            None if queue.len() == left => break,
                            None => {}
                        }
                    }
                }
                while let Some(next) = queue.next() {
                    prop_assert!(running.iter().all(|it| it.key != next.key), "two deliveries with one key at the same time");
                    seen.entry(next.key.clone()).or_default().push(next.id.millis);
                    running.push(next);
                }
            }
            prop_assert_eq!(queue.len(), 0);
            prop_assert_eq!(seen.values().map(Vec::len).sum::<usize>(), keys.len());
            prop_assert!(seen.values().all(|positions| positions.is_sorted()));
        }
    }
}
