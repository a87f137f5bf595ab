//! Sharded leadership: an event maps to one of 8 shards by its id, and the pod that holds the lease of a shard leads all
//! events of the shard. A pod that is slow or has crashed delays its own shards only.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use onsale_storage::lease::{self, Candidacy, Election, Lease};
use onsale_types::EventId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of shards. All pods must agree: with different numbers two pods would lead one event under different leases, and
/// only the line's lock would keep them apart.
const SHARDS: u8 = 8;

/// Name of a shard's lease, followed by the shard's number.
const LEASE: &str = "line-keeper-";

/// The candidacies of this pod.
#[derive(Debug)]
pub(crate) struct LeaderShards {
    shards: Vec<LeaderShard>,
}

#[derive(Debug)]
struct LeaderShard {
    candidacy: Candidacy,
    /// Epoch of the tenure seen last, and the time at which it was first seen.
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

    /// Returns the lease under which to act for the event; `None` if another pod leads it.
    pub(crate) fn lease(&self, event_id: EventId) -> Option<Lease> {
        self.shards.get(usize::from(shard_of(event_id)))?.lease()
    }

    /// Returns those of the events that this pod leads, with their leases.
    pub(crate) fn led(&self, events: impl IntoIterator<Item = EventId>) -> Vec<(EventId, Lease)> {
        events.into_iter().filter_map(|event_id| Some((event_id, self.lease(event_id)?))).collect()
    }

    /// Returns true if this pod has led the event for `span` without a break.
    pub(crate) fn has_led_for(&self, event_id: EventId, span: Duration) -> bool {
        let shard = self.shards.get(usize::from(shard_of(event_id)));
        shard.and_then(LeaderShard::led_since).is_some_and(|since| since.elapsed() >= span)
    }

    /// Returns true if this pod leads a shard.
    pub(crate) fn leads_any(&self) -> bool {
        // No short circuit: `lease()` also records when each shard's tenure began.
        self.shards.iter().filter(|shard| shard.lease().is_some()).count() > 0
    }

    /// Returns true if this pod leads the first shard. It then does the jobs that one pod does for all events.
    pub(crate) fn leads_first(&self) -> bool {
        self.shards.first().is_some_and(|shard| shard.lease().is_some())
    }

    /// Yields when this pod gains or loses a shard.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Send + Unpin + use<> {
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
        let mut tenure = self.tenure.lock();
        *tenure = match (&lease, *tenure) {
            (Some(lease), Some((epoch, since))) if epoch == lease.epoch() => Some((epoch, since)),
            (Some(lease), _) => Some((lease.epoch(), Instant::now())),
            (None, _) => None,
        };
        lease
    }

    fn led_since(&self) -> Option<Instant> {
        self.lease()?;
        self.tenure.lock().map(|(_, since)| since)
    }
}

/// Returns the shard of an event. All pods and all versions must map an event to the same shard.
fn shard_of(event_id: EventId) -> u8 {
    event_id.as_uuid().as_bytes().iter().fold(0, |mixed, byte| mixed ^ byte) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_spread_over_all_shards_and_keep_theirs() {
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
