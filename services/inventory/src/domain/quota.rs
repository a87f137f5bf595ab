//! A quota: units kept out of the public sale for a group, what is promised and used of them, and their return.

use onsale_types::{EventId, QuotaId, SectorId, Timestamp};

use super::{event::Sector, layout::SeatLayout, pick::pick, unit_set::UnitSet};

/// Where a quota is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaState {
    /// Its units are kept for invitees.
    Open,
    /// Its unused units went to the public sale.
    Returned,
}

impl QuotaState {
    /// Its name, in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Returned => "RETURNED",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Open, Self::Returned].into_iter().find(|state| state.name() == name)
    }
}

/// Units kept out of the public sale for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its id.
    pub id: QuotaId,
    /// The event.
    pub event_id: EventId,
    /// The sector.
    pub sector_id: SectorId,
    /// Name of the group.
    pub name: String,
    /// Units it was given.
    pub unit_count: u32,
    /// Units promised in invitations and neither held, bought nor expired.
    pub invited_count: u32,
    /// Units held or bought through invitations.
    pub used_count: u32,
    /// Where it is in its life.
    pub state: QuotaState,
    /// When its unused units go to the public sale.
    pub return_time: Timestamp,
    /// When it was created.
    pub create_time: Timestamp,
}

/// Invitations would promise more than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// So many units may still be promised.
    pub free_count: u32,
}

impl Quota {
    /// Units that nobody was promised.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        match self.state {
            QuotaState::Open => {
                self.unit_count.saturating_sub(self.invited_count).saturating_sub(self.used_count)
            }
            QuotaState::Returned => 0,
        }
    }

    /// Whether invitations to it are worth something at `now`. Past its time it is open until somebody returns it.
    #[must_use]
    pub fn is_open_at(&self, now: Timestamp) -> bool {
        self.state == QuotaState::Open && now < self.return_time
    }

    /// Promises `units` more.
    pub fn promise(&mut self, units: u32) -> Result<(), Exhausted> {
        let free_count = self.free_count();
        if units > free_count {
            return Err(Exhausted { free_count });
        }
        self.invited_count = self.invited_count.saturating_add(units);
        Ok(())
    }

    /// An invitee holds `units` of what was promised. The rest of the promise stands: the hold may come to nothing.
    pub fn hold(&mut self, units: u32) {
        self.invited_count = self.invited_count.saturating_sub(units);
        self.used_count = self.used_count.saturating_add(units);
    }

    /// An invitee gives `units` back that were held. True when they are the quota's again, and promised as before; false
    /// when they are the public's.
    #[must_use]
    pub fn take_back(&mut self, units: u32) -> bool {
        self.used_count = self.used_count.saturating_sub(units);
        let is_open = self.state == QuotaState::Open;
        if is_open {
            self.invited_count = self.invited_count.saturating_add(units);
        }
        is_open
    }

    /// An invitee bought fewer units than were promised: `rest` of them may be promised to others.
    pub fn forgo(&mut self, rest: u32) {
        self.invited_count = self.invited_count.saturating_sub(rest);
    }

    /// Its time has come: what nobody holds or bought is the public's, and no promise counts any more.
    pub fn give_up(&mut self) {
        self.state = QuotaState::Returned;
        self.invited_count = 0;
    }
}

/// `count` of the free units, in rising order; none when there are fewer. Seats as the public gets them, but where the
/// units do not matter, or where a crowd was faster (`is_contended`), those that a crowd asks for last: a large quota
/// would lose one of its units to somebody in every try.
#[must_use]
pub fn choose(
    layout: Option<&SeatLayout>,
    free: &UnitSet,
    count: u32,
    is_contended: bool,
) -> Option<Vec<u32>> {
    if layout.is_some() && !is_contended {
        return pick(layout, free, count);
    }
    let skipped = usize::try_from(free.count().checked_sub(count)?).ok()?;
    Some(free.iter().skip(skipped).collect())
}

/// What a draft must keep as it is, because a quota has units of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptSector {
    /// The sector.
    pub sector_id: SectorId,
    /// When the last of its quotas is returned.
    pub return_time: Timestamp,
}

/// Why a draft cannot be changed so: a quota would lose its units, or its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DraftFault {
    /// A sector is gone.
    #[error("lack the sector {0}, of which a quota keeps units")]
    Removed(SectorId),
    /// A sector has other units.
    #[error("cannot change: a quota keeps units of the sector")]
    Reshaped {
        /// Which of the sectors.
        index: usize,
    },
    /// The event starts before a quota is returned.
    #[error("must be after the return of every quota")]
    Early,
}

/// What is wrong with a draft that changes from the sectors `before` to `after`.
#[must_use]
pub fn check_draft(
    kept: &[KeptSector],
    before: &[Sector],
    after: &[Sector],
    start_time: Timestamp,
) -> Vec<DraftFault> {
    let mut faults = Vec::new();
    for KeptSector { sector_id, .. } in kept {
        let was = before.iter().find(|sector| sector.id == *sector_id);
        match after.iter().enumerate().find(|(_, sector)| sector.id == *sector_id) {
            None => faults.push(DraftFault::Removed(*sector_id)),
            Some((index, is)) => {
                let is_same = |was: &Sector| was.capacity == is.capacity && was.layout == is.layout;
                if !was.is_some_and(is_same) {
                    faults.push(DraftFault::Reshaped { index });
                }
            }
        }
    }
    if kept.iter().any(|kept| kept.return_time >= start_time) {
        faults.push(DraftFault::Early);
    }
    faults
}

#[cfg(test)]
pub(super) mod tests {
    use onsale_types::Money;
    use proptest::prelude::*;

    use super::{super::layout::SeatRow, *};

    /// An open quota that nobody was invited to.
    pub(in crate::domain) fn a_quota(unit_count: u32) -> Quota {
        Quota {
            id: QuotaId::generate(),
            event_id: EventId::generate(),
            sector_id: SectorId::generate(),
            name: "Fan club".to_owned(),
            unit_count,
            invited_count: 0,
            used_count: 0,
            state: QuotaState::Open,
            return_time: Timestamp::from_secs(100),
            create_time: Timestamp::EPOCH,
        }
    }

    fn a_sector(id: SectorId, capacity: u32) -> Sector {
        let price = Money::new(1, onsale_types::Currency::parse("EUR").unwrap());
        Sector { id, name: id.to_string(), price, capacity, layout: None }
    }

    #[test]
    fn no_more_is_promised_than_there_is() {
        let mut quota = a_quota(5);
        assert_eq!(quota.promise(3), Ok(()));
        quota.hold(2);
        assert_eq!(quota.promise(3), Err(Exhausted { free_count: 2 }));
        assert_eq!(quota.promise(2), Ok(()));
        assert_eq!(quota.promise(1), Err(Exhausted { free_count: 0 }));
        assert_eq!(quota.promise(u32::MAX), Err(Exhausted { free_count: 0 }));
    }

    #[test]
    fn what_comes_back_is_promised_again_until_the_quota_is_returned() {
        let mut quota = a_quota(5);
        quota.promise(4).unwrap();
        quota.hold(3);
        assert!(quota.take_back(3));
        assert_eq!((quota.invited_count, quota.used_count), (4, 0));
        quota.hold(3);
        quota.give_up();
        assert!(!quota.take_back(3));
        assert_eq!((quota.invited_count, quota.used_count, quota.free_count()), (0, 0, 0));
    }

    #[test]
    fn it_is_open_until_its_time_by_whoever_asks() {
        let mut quota = a_quota(1);
        assert!(quota.is_open_at(Timestamp::from_secs(99)));
        assert!(!quota.is_open_at(Timestamp::from_secs(100)));
        quota.give_up();
        assert!(!quota.is_open_at(Timestamp::EPOCH));
        assert_eq!(QuotaState::from_name(quota.state.name()), Some(QuotaState::Returned));
        assert_eq!(QuotaState::from_name("GONE"), None);
    }

    #[test]
    fn a_draft_keeps_the_sectors_of_its_quotas_as_they_are() {
        let (kept_id, other_id) = (SectorId::generate(), SectorId::generate());
        let kept = [KeptSector { sector_id: kept_id, return_time: Timestamp::from_secs(100) }];
        let before = [a_sector(kept_id, 5), a_sector(other_id, 5)];
        let check = |after: &[Sector], start| check_draft(&kept, &before, after, Timestamp::from_secs(start));
        assert_eq!(check(&[a_sector(other_id, 9), a_sector(kept_id, 5)], 101), []);
        assert_eq!(check(&[a_sector(other_id, 5)], 101), [DraftFault::Removed(kept_id)]);
        let grown = [a_sector(other_id, 5), a_sector(kept_id, 6)];
        assert_eq!(check(&grown, 100), [DraftFault::Reshaped { index: 1 }, DraftFault::Early]);
        let mut seated = a_sector(kept_id, 5);
        let row = SeatRow { label: "A".to_owned(), seat_count: 5, seat_labels: Vec::new() };
        seated.layout = Some(SeatLayout::new(vec![row]));
        assert_eq!(check(&[seated], 101), [DraftFault::Reshaped { index: 0 }]);
    }

    proptest! {
        #[test]
        fn chosen_units_are_free_and_as_many_as_asked_for(bits: u16, count in 1_u32..20, is_contended: bool, seated: bool) {
            let mut free = UnitSet::empty(16);
            (1..=16).filter(|unit| bits >> (unit - 1) & 1 == 1).for_each(|unit| free.insert(unit));
            let row = |label: &str| SeatRow { label: label.to_owned(), seat_count: 8, seat_labels: Vec::new() };
            let layout = SeatLayout::new(vec![row("A"), row("B")]);
            match choose(seated.then_some(&layout), &free, count, is_contended) {
                None => prop_assert!(free.count() < count),
                Some(units) => {
                    prop_assert_eq!(units.len(), usize::try_from(count).unwrap());
                    prop_assert!(units.is_sorted_by(|a, b| a < b));
                    prop_assert!(units.iter().all(|unit| free.contains(*unit)));
                }
            }
        }
    }
}
