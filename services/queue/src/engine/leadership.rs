//! Leadership per event: events are spread over a few shards, and who holds a shard's lease leads its events. One pod that is
//! slow or gone holds up its own shards only.

use std::{sync::Mutex, time::Duration};

use futures_util::{Stream, StreamExt, stream};
use onsale_storage::lease::{self, Candidacy, Election, Lease};
use onsale_types::EventId;
use tokio::time::Instant;

use super::lock;

/// How many shards there are. Pods must agree: with another number two of them would lead one event at a time, each fenced by
/// a lease of its own, and only the line's lock would be left between them.
const SHARDS: u8 = 8;

/// What the leases are called; the shard's number follows.
const LEASE: &str = "line-keeper-";

/// This pod's candidacies.
#[derive(Debug)]
pub(crate) struct LeaderShards {
    shards: Vec<LeaderShard>,
}

#[derive(Debug)]
struct LeaderShard {
    candidacy: Candidacy,
    /// The epoch of the tenure last seen, and since when it has been.
    tenure: Mutex<Option<(i64, Instant)>>,
}

impl LeaderShards {
    /// Becomes a candidate for every shard.
    pub(crate) fn enter(election: &Election) -> Result<Self, lease::Error> {
        let shard = |number| {
            let candidacy = election.enter(&format!("{LEASE}{number}"))?;
            Ok(LeaderShard { candidacy, tenure: Mutex::default() })
        };
        Ok(Self { shards: (0..SHARDS).map(shard).collect::<Result<_, lease::Error>>()? })
    }

    /// The lease to act under for this event, if this pod leads it.
    pub(crate) fn lease(&self, event_id: EventId) -> Option<Lease> {
        self.shards.get(usize::from(shard_of(event_id)))?.lease()
    }

    /// The events that this pod leads, with the leases to act under.
    pub(crate) fn led(&self, events: impl IntoIterator<Item = EventId>) -> Vec<(EventId, Lease)> {
        events.into_iter().filter_map(|event_id| Some((event_id, self.lease(event_id)?))).collect()
    }

    /// Whether this pod has led the event for this long without a break.
    pub(crate) fn has_led_for(&self, event_id: EventId, span: Duration) -> bool {
        let shard = self.shards.get(usize::from(shard_of(event_id)));
        shard.and_then(LeaderShard::led_since).is_some_and(|since| since.elapsed() >= span)
    }

    /// Whether this pod leads anything.
    pub(crate) fn leads_any(&self) -> bool {
        // All are asked, so that each notes its tenure.
        self.shards.iter().filter(|shard| shard.lease().is_some()).count() > 0
    }

    /// Whether it is for this pod to do what one pod does for all events.
    pub(crate) fn leads_first(&self) -> bool {
        self.shards.first().is_some_and(|shard| shard.lease().is_some())
    }

    /// Says so when a shard was taken or lost.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Unpin + use<> {
        let changes = self.shards.iter().map(|shard| {
            let leadership = shard.candidacy.leadership();
            stream::unfold(leadership, |mut leadership| async move {
                leadership.changed().await.ok()?;
                Some(((), leadership))
            })
            .boxed()
        });
        stream::select_all(changes)
    }
}

impl LeaderShard {
    fn lease(&self) -> Option<Lease> {
        let lease = self.candidacy.lease();
        let mut tenure = lock(&self.tenure);
        *tenure = match (&lease, *tenure) {
            (Some(lease), Some((epoch, since))) if epoch == lease.epoch() => Some((epoch, since)),
            (Some(lease), _) => Some((lease.epoch(), Instant::now())),
            (None, _) => None,
        };
        lease
    }

    fn led_since(&self) -> Option<Instant> {
        self.lease()?;
        lock(&self.tenure).map(|(_, since)| since)
    }
}

/// The shard of an event: the same on every pod and in every version.
fn shard_of(event_id: EventId) -> u8 {
    event_id.as_uuid().as_bytes().iter().fold(0, |mixed, byte| mixed ^ byte) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_spread_over_all_lanes_and_an_event_stays_in_its_own() {
        let mut counts = [0_u32; 8];
        for _ in 0..8_000 {
            let event_id = EventId::generate();
            assert_eq!(shard_of(event_id), shard_of(event_id));
            counts[usize::from(shard_of(event_id))] += 1;
        }
        assert!(counts.iter().all(|count| (700..1_300).contains(count)), "{counts:?}");
        let known = EventId::parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap();
        assert_eq!(shard_of(known), 6);
    }
}
