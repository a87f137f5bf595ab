//! Who waits just before and just after a customer.

use onsale_types::{CustomerId, EventId};

use super::{App, places::Asked};
use crate::{
    domain::{entry::EntryState, refusal::Refusal},
    error::Error,
    store::neighbors::{self, Around, Own, Shown},
};

/// How often an entry that moved between two looks is looked at again.
const LOOKS_MAX: u32 = 3;

/// A window of the line around a customer.
#[derive(Clone, Debug)]
pub struct Neighborhood {
    /// Of the queue.
    pub revision: u64,
    /// The customer's own position.
    pub position: u64,
    /// Those just before, in order of the line.
    pub before: Vec<Neighbor>,
    /// Those just after, in order of the line.
    pub after: Vec<Neighbor>,
}

/// Somebody in line near the customer.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// How many stand before, plus one.
    pub position: u64,
    /// What they chose to show.
    pub shown: Shown,
}

impl App {
    /// Who waits around the customer, up to `neighbors_max` on either side. No sign of life: looking is not waiting.
    pub async fn neighbors(
        &self,
        event_id: EventId,
        customer_id: CustomerId,
        neighbors_max: u32,
    ) -> Result<Neighborhood, Error> {
        let mut looks = 0;
        loop {
            looks += 1;
            let around =
                neighbors::around(&self.stores.postgres, event_id, customer_id, neighbors_max).await?;
            let own = waiting(event_id, &around)?;
            match self.position_among(event_id, own, &around, neighbors_max).await? {
                Some(position) => return Ok(neighborhood(around, position)),
                // It left the line since we looked: why, the next look tells.
                None if looks < LOOKS_MAX => {}
                None => {
                    let position = first_possible(&around);
                    return Ok(neighborhood(around, position));
                }
            }
        }
    }

    /// The own position; none when the entry does not wait any more.
    async fn position_among(
        &self,
        event_id: EventId,
        own: Own,
        around: &Around,
        neighbors_max: u32,
    ) -> Result<Option<u64>, Error> {
        let nearest = first_possible(around);
        // Fewer before than were asked for: these are all.
        if nearest <= u64::from(neighbors_max) {
            return Ok(Some(nearest));
        }
        let asked = Asked { event_id, entry_id: own.entry_id, seq: own.seq, revision: around.revision };
        let position = self.positions.submit(asked).await?;
        // Asked a moment later, when some of those before may have gone.
        Ok(position.map(|position| position.max(nearest)))
    }
}

/// The customer's entry, if it has neighbors.
fn waiting(event_id: EventId, around: &Around) -> Result<Own, Refusal> {
    if !around.is_tracked {
        return Err(Refusal::NeighborsNotTracked);
    }
    match around.own {
        Some(own) if own.state == EntryState::Waiting => Ok(own),
        Some(own) => Err(Refusal::EntryNotWaiting { state: own.state }),
        None => Err(Refusal::EntryNotFound { event_id }),
    }
}

/// The position right behind those known to be before.
fn first_possible(around: &Around) -> u64 {
    u64::try_from(around.before.len()).unwrap_or(u64::MAX).saturating_add(1)
}

fn neighborhood(around: Around, position: u64) -> Neighborhood {
    let first = position.saturating_sub(u64::try_from(around.before.len()).unwrap_or(u64::MAX));
    let neighbor = |(shown, position): (Shown, u64)| Neighbor { position, shown };
    Neighborhood {
        revision: around.revision,
        position,
        before: around.before.into_iter().zip(first..).map(neighbor).collect(),
        after: around.after.into_iter().zip(position.saturating_add(1)..).map(neighbor).collect(),
    }
}
