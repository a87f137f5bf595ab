//! Holds: selections, the units set aside for a claim, and the transitions of a hold's state.

use onsale_types::{CustomerId, EventId, HoldId, InvitationId, QuotaId, SectorId, Timestamp};

use super::event::{Offer, Sector};

/// The units that a customer asks for in one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) sector_id: SectorId,
    pub(crate) choice: UnitChoice,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitChoice {
    /// This many of the best units.
    Count(u32),
    /// Exactly these units, in rising order.
    Units(Vec<u32>),
}

impl UnitChoice {
    /// Returns the number of units asked for.
    #[must_use]
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Units(units) => u32::try_from(units.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns true if `units`, in rising order, satisfy the choice.
    fn is_met_by(&self, units: &[u32]) -> bool {
        match self {
            Self::Count(count) => usize::try_from(*count).is_ok_and(|count| count == units.len()),
            Self::Units(chosen) => chosen == units,
        }
    }
}

/// A selection that does not fit its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectionFault {
    #[error("the event has no sector {0}")]
    UnknownSector(SectorId),
    /// Units of a general admission sector cannot be chosen by number.
    #[error("the sector has no seats, so units cannot be chosen")]
    NotSeated {
        /// Index of the selection.
        index: usize,
    },
    #[error("unit {unit} does not exist in the sector")]
    UnknownUnit {
        /// Index of the selection.
        index: usize,
        unit: u32,
    },
    #[error("must have at most {units_max} units together, the event's limit per customer")]
    TooMany { units_max: u32 },
}

/// Returns the selected sectors in the order of `selections`, or the first fault.
pub(crate) fn check_selections<'a>(
    offer: &'a Offer,
    units_max: u32,
    selections: &[Selection],
) -> Result<Vec<&'a Sector>, SelectionFault> {
    let mut selected = Vec::with_capacity(selections.len());
    for (index, selection) in selections.iter().enumerate() {
        let sector = offer.sector(selection.sector_id);
        let sector = sector.ok_or(SelectionFault::UnknownSector(selection.sector_id))?;
        if let UnitChoice::Units(units) = &selection.choice {
            if sector.layout.is_none() {
                return Err(SelectionFault::NotSeated { index });
            }
            if let Some(unit) = units.iter().find(|unit| !(1..=sector.capacity).contains(unit)) {
                return Err(SelectionFault::UnknownUnit { index, unit: *unit });
            }
        }
        selected.push(sector);
    }
    let count = selections.iter().map(|selection| selection.choice.count()).fold(0, u32::saturating_add);
    if count > units_max { Err(SelectionFault::TooMany { units_max }) } else { Ok(selected) }
}

/// Life of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum HoldState {
    /// The units are set aside. A hold past its expiry stays in this state until a worker releases it.
    Held,
    /// The units are sold.
    Committed,
    /// The units are no longer the hold's.
    Released,
}

/// A requested end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Commit,
    Release,
}

/// The hold has already ended the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldOver {
    Released,
    Committed,
}

/// Units set aside for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Created by the caller.
    pub(crate) id: HoldId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    pub(crate) state: HoldState,
    /// One item per sector; empty for a tombstone.
    pub(crate) items: Vec<HoldItem>,
    /// The invitation whose quota the units came from. `None`: the public sale.
    pub(crate) invited: Option<Invited>,
    pub(crate) create_time: Timestamp,
    /// Time from which the expiry worker releases the hold.
    pub(crate) expire_time: Timestamp,
}

/// An invitation and its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invited {
    pub(crate) quota_id: QuotaId,
    pub(crate) invitation_id: InvitationId,
}

/// Units of one sector. Prices and seats follow from the sector, which does not change once it is on sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldItem {
    pub(crate) sector_id: SectorId,
    /// In rising order.
    pub(crate) units: Vec<u32>,
}

impl Hold {
    /// Ends the hold. Returns true if its state changed, false for a repeat of the same end.
    pub(crate) fn end(&mut self, end: HoldEnd) -> Result<bool, HoldOver> {
        match (self.state, end) {
            (HoldState::Held, HoldEnd::Commit) => self.state = HoldState::Committed,
            (HoldState::Held, HoldEnd::Release) => self.state = HoldState::Released,
            (HoldState::Committed, HoldEnd::Commit) | (HoldState::Released, HoldEnd::Release) => {
                return Ok(false);
            }
            (HoldState::Committed, HoldEnd::Release) => return Err(HoldOver::Committed),
            (HoldState::Released, HoldEnd::Commit) => return Err(HoldOver::Released),
        }
        Ok(true)
    }

    /// Returns true if the hold was released before it was made. It has no units, event or customer, and blocks its id.
    #[must_use]
    pub(crate) fn is_tombstone(&self) -> bool {
        self.event_id.as_uuid().is_nil()
    }

    /// Fills a tombstone with the event and customer of the reservation that finds it.
    #[must_use]
    pub(crate) fn released_for(self, event_id: EventId, customer_id: CustomerId) -> Self {
        Self { event_id, customer_id, ..self }
    }

    /// Returns true if the hold is the result of the same request, so that the request is a repeat.
    #[must_use]
    pub(crate) fn answers(
        &self,
        event_id: EventId,
        customer_id: CustomerId,
        selections: &[Selection],
    ) -> bool {
        let is_met = |(selection, item): (&Selection, &HoldItem)| {
            selection.sector_id == item.sector_id && selection.choice.is_met_by(&item.units)
        };
        self.event_id == event_id
            && self.customer_id == customer_id
            && self.items.len() == selections.len()
            && selections.iter().zip(&self.items).all(is_met)
    }

    /// Returns the number of units of all items.
    #[must_use]
    pub(crate) fn unit_count(&self) -> u32 {
        let units = self.items.iter().map(|item| item.units.len()).fold(0, usize::saturating_add);
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_ends_once_and_a_repeat_of_its_end_succeeds() {
        let hold = |state| Hold {
            id: HoldId::generate(),
            event_id: EventId::generate(),
            customer_id: CustomerId::generate(),
            state,
            items: Vec::new(),
            invited: None,
            create_time: Timestamp::EPOCH,
            expire_time: Timestamp::EPOCH,
        };
        let end = |state, end| {
            let mut hold = hold(state);
            hold.end(end).map(|is_new| (is_new, hold.state))
        };
        let (commit, release) = (HoldEnd::Commit, HoldEnd::Release);
        assert_eq!(end(HoldState::Held, commit), Ok((true, HoldState::Committed)));
        assert_eq!(end(HoldState::Held, release), Ok((true, HoldState::Released)));
        assert_eq!(end(HoldState::Committed, commit), Ok((false, HoldState::Committed)));
        assert_eq!(end(HoldState::Released, release), Ok((false, HoldState::Released)));
        assert_eq!(end(HoldState::Committed, release), Err(HoldOver::Committed));
        assert_eq!(end(HoldState::Released, commit), Err(HoldOver::Released));
    }
}
