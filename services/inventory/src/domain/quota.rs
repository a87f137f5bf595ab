//! Quotas: units kept out of the public sale for a group, the promises and uses of them, and their return.

use onsale_types::{EventId, QuotaId, SectorId, Timestamp};

use super::{event::Sector, layout::SeatLayout, pick::pick, unit_set::UnitSet};

/// Life of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum QuotaState {
    /// The units are kept for invitees.
    Open,
    /// The unused units went to the public sale.
    Returned,
}

/// Units kept out of the public sale for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) id: QuotaId,
    pub(crate) event_id: EventId,
    pub(crate) sector_id: SectorId,
    /// Name of the group.
    pub(crate) name: String,
    /// Units at its creation.
    pub(crate) unit_count: u32,
    /// Units promised in invitations and neither held, bought nor expired.
    pub(crate) invited_count: u32,
    /// Units held or bought through invitations.
    pub(crate) used_count: u32,
    pub(crate) state: QuotaState,
    /// Time at which the unused units go to the public sale.
    pub(crate) return_time: Timestamp,
    pub(crate) create_time: Timestamp,
}

/// Invitations would promise more units than are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted {
    /// Units that may still be promised.
    pub(crate) free_count: u32,
}

impl Quota {
    /// Returns the number of units that may still be promised.
    #[must_use]
    pub(crate) fn free_count(&self) -> u32 {
        match self.state {
            QuotaState::Open => {
                self.unit_count.saturating_sub(self.invited_count).saturating_sub(self.used_count)
            }
            QuotaState::Returned => 0,
        }
    }

    /// Returns true if its invitations can be used at `now`. From the return time on they cannot, although the quota stays OPEN
    /// until a worker returns it.
    #[must_use]
    pub(crate) fn is_open_at(&self, now: Timestamp) -> bool {
        self.state == QuotaState::Open && now < self.return_time
    }

    /// Promises `units` more.
    pub(crate) fn promise(&mut self, units: u32) -> Result<(), Exhausted> {
        let free_count = self.free_count();
        if units > free_count {
            return Err(Exhausted { free_count });
        }
        self.invited_count = self.invited_count.saturating_add(units);
        Ok(())
    }

    /// Moves `units` from promised to used. The rest of the promise stays, because the hold may be released.
    pub(crate) fn hold(&mut self, units: u32) {
        self.invited_count = self.invited_count.saturating_sub(units);
        self.used_count = self.used_count.saturating_add(units);
    }

    /// Takes back `units` of a released hold. Returns true if they are kept and promised again, false if they go to the public
    /// sale because the quota has been returned.
    #[must_use]
    pub(crate) fn release(&mut self, units: u32) -> bool {
        self.used_count = self.used_count.saturating_sub(units);
        let is_open = self.state == QuotaState::Open;
        if is_open {
            self.invited_count = self.invited_count.saturating_add(units);
        }
        is_open
    }

    /// Frees `rest` promised units of an invitee who bought fewer, so that others can be invited.
    pub(crate) fn unpromise(&mut self, rest: u32) {
        self.invited_count = self.invited_count.saturating_sub(rest);
    }

    /// Ends the quota: unused units go to the public sale and every promise is void.
    pub(crate) fn mark_returned(&mut self) {
        self.state = QuotaState::Returned;
        self.invited_count = 0;
    }
}

/// A new quota that does not fit its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaFault {
    #[error("must be in the future")]
    ReturnInThePast,
    #[error("must be before the event starts")]
    ReturnAfterStart,
    #[error("must be at most {capacity}, the capacity of the sector")]
    TooMany { capacity: u32 },
}

/// Decides whether a quota may be returned at `return_time`.
pub(crate) fn check_return_time(
    return_time: Timestamp,
    now: Timestamp,
    start_time: Timestamp,
) -> Result<(), QuotaFault> {
    if return_time <= now {
        Err(QuotaFault::ReturnInThePast)
    } else if return_time >= start_time {
        Err(QuotaFault::ReturnAfterStart)
    } else {
        Ok(())
    }
}

/// Chooses `count` free units and returns them in rising order, or `None` if fewer are free. Seats are chosen as for the
/// public. In general admission, or when other calls were faster (`is_contended`), the last units are chosen: the public gets
/// the first ones, and a large quota would lose one of its units to a customer at every attempt.
#[must_use]
pub(crate) fn choose(
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

/// A sector of a draft that quotas keep units of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptSector {
    pub(crate) sector_id: SectorId,
    /// Latest return time of its quotas.
    pub(crate) return_time: Timestamp,
}

/// A change of a draft that would harm a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DraftFault {
    #[error("must include sector {0}, because a quota keeps units of it")]
    Removed(SectorId),
    /// The capacity or the layout of a kept sector changes.
    #[error("cannot change, because a quota keeps units of the sector")]
    Reshaped {
        /// Index of the sector in the changed draft.
        index: usize,
    },
    /// The event would start before a quota is returned.
    #[error("must be after the return of every quota")]
    Early,
}

/// Returns the faults of a draft whose sectors change from `before` to `after`.
#[must_use]
pub(crate) fn check_draft(
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
    use onsale_types::{Money, Named as _};
    use proptest::prelude::*;

    use super::{super::layout::SeatRow, *};

    /// Returns an open quota without invitations.
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
    fn promises_never_exceed_the_quota() {
        let mut quota = a_quota(5);
        assert_eq!(quota.promise(3), Ok(()));
        quota.hold(2);
        assert_eq!(quota.promise(3), Err(Exhausted { free_count: 2 }));
        assert_eq!(quota.promise(2), Ok(()));
        assert_eq!(quota.promise(1), Err(Exhausted { free_count: 0 }));
        assert_eq!(quota.promise(u32::MAX), Err(Exhausted { free_count: 0 }));
    }

    #[test]
    fn released_units_are_promised_again_until_the_return() {
        let mut quota = a_quota(5);
        quota.promise(4).unwrap();
        quota.hold(3);
        assert!(quota.release(3));
        assert_eq!((quota.invited_count, quota.used_count), (4, 0));
        quota.hold(3);
        quota.mark_returned();
        assert!(!quota.release(3));
        assert_eq!((quota.invited_count, quota.used_count, quota.free_count()), (0, 0, 0));
    }

    #[test]
    fn quota_is_open_until_its_return_time() {
        let mut quota = a_quota(1);
        assert!(quota.is_open_at(Timestamp::from_secs(99)));
        assert!(!quota.is_open_at(Timestamp::from_secs(100)));
        quota.mark_returned();
        assert!(!quota.is_open_at(Timestamp::EPOCH));
        assert_eq!(QuotaState::from_name(quota.state.name()), Some(QuotaState::Returned));
        assert_eq!(QuotaState::from_name("GONE"), None);
    }

    #[test]
    fn draft_keeps_the_sectors_of_its_quotas_unchanged() {
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
        fn chosen_units_are_free_and_complete(bits: u16, count in 1_u32..20, is_contended: bool, seated: bool) {
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
