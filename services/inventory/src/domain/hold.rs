//! A hold: what is asked for, what is set aside, and the moves of its state.

use onsale_types::{CustomerId, EventId, HoldId, InvitationId, QuotaId, SectorId, Timestamp};

use super::event::Sector;

/// What a customer asks for in one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The sector.
    pub sector_id: SectorId,
    /// How many units, or which.
    pub choice: UnitChoice,
}

/// How many units, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitChoice {
    /// So many, whichever are best.
    Count(u32),
    /// Exactly these, in rising order.
    Units(Vec<u32>),
}

impl UnitChoice {
    /// How many units are asked for.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Units(units) => u32::try_from(units.len()).unwrap_or(u32::MAX),
        }
    }

    /// Whether `units`, in rising order, are what is asked for.
    fn is_met_by(&self, units: &[u32]) -> bool {
        match self {
            Self::Count(count) => usize::try_from(*count).is_ok_and(|count| count == units.len()),
            Self::Units(wanted) => wanted == units,
        }
    }
}

/// What is wrong with a selection, as far as the event decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionFault {
    /// The event has no such sector.
    #[error("the event has no sector {0}")]
    UnknownSector(SectorId),
    /// A general admission sector has no seats to choose.
    #[error("names units of a sector without seats")]
    NotSeated {
        /// Which selection.
        index: usize,
    },
    /// The sector has no unit with this number.
    #[error("names unit {unit}, which the sector has not")]
    UnknownUnit {
        /// Which selection.
        index: usize,
        /// The number.
        unit: u32,
    },
    /// More than a customer may buy.
    #[error("together more than {units_max} units, the event's limit per customer")]
    TooMany {
        /// The event's limit.
        units_max: u32,
    },
}

/// The sectors that are selected, in the order of `selections`; or the first thing that is wrong with them.
pub fn check_selections<'a>(
    sectors: &'a [Sector],
    units_max: u32,
    selections: &[Selection],
) -> Result<Vec<&'a Sector>, SelectionFault> {
    let mut selected = Vec::with_capacity(selections.len());
    for (index, selection) in selections.iter().enumerate() {
        let sector = sectors.iter().find(|sector| sector.id == selection.sector_id);
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

/// Where a hold is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// Units are set aside.
    Held,
    /// Units are sold.
    Committed,
    /// Units went back.
    Released,
}

impl HoldState {
    /// Its name, in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "HELD",
            Self::Committed => "COMMITTED",
            Self::Released => "RELEASED",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Held, Self::Committed, Self::Released].into_iter().find(|state| state.name() == name)
    }

    /// What `CommitHold` does; true when the state changes. A hold past its time is still HELD until it is released.
    pub fn commit(self) -> Result<bool, HoldOver> {
        match self {
            Self::Held => Ok(true),
            Self::Committed => Ok(false),
            Self::Released => Err(HoldOver::Released),
        }
    }

    /// What `ReleaseHold` does; true when the state changes.
    pub fn release(self) -> Result<bool, HoldOver> {
        match self {
            Self::Held => Ok(true),
            Self::Released => Ok(false),
            Self::Committed => Err(HoldOver::Committed),
        }
    }
}

/// The hold came to another end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOver {
    /// Its units went back.
    Released,
    /// Its units are sold.
    Committed,
}

/// Units set aside for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its id, made by the caller.
    pub id: HoldId,
    /// The event.
    pub event_id: EventId,
    /// For whom.
    pub customer_id: CustomerId,
    /// Where it is in its life.
    pub state: HoldState,
    /// The units, one item per sector.
    pub items: Vec<HoldItem>,
    /// By which invitation. None: from the public sale.
    pub invited: Option<Invited>,
    /// When it was made.
    pub create_time: Timestamp,
    /// When it is released by itself.
    pub expire_time: Timestamp,
}

/// Where the units of an invited customer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invited {
    /// The quota.
    pub quota_id: QuotaId,
    /// The invitation to it.
    pub invitation_id: InvitationId,
}

/// Units of one sector. What they cost and which seats they are, the sector says: it does not change once it is on sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldItem {
    /// The sector.
    pub sector_id: SectorId,
    /// The units' numbers, in rising order.
    pub units: Vec<u32>,
}

impl Hold {
    /// Whether it was released before it was made: it has no units, and is of no customer and no event.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.event_id.as_uuid().is_nil()
    }

    /// What a customer hears of a hold that was released before it was made.
    #[must_use]
    pub fn released_for(self, event_id: EventId, customer_id: CustomerId) -> Self {
        Self { event_id, customer_id, ..self }
    }

    /// Whether it is what this request asks for: the request came before, under another request id.
    #[must_use]
    pub fn answers(&self, event_id: EventId, customer_id: CustomerId, selections: &[Selection]) -> bool {
        let is_met = |(selection, item): (&Selection, &HoldItem)| {
            selection.sector_id == item.sector_id && selection.choice.is_met_by(&item.units)
        };
        self.event_id == event_id
            && self.customer_id == customer_id
            && self.items.len() == selections.len()
            && selections.iter().zip(&self.items).all(is_met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_once_and_a_repeat_of_its_end_is_no_failure() {
        assert_eq!(HoldState::Held.commit(), Ok(true));
        assert_eq!(HoldState::Held.release(), Ok(true));
        assert_eq!(HoldState::Committed.commit(), Ok(false));
        assert_eq!(HoldState::Released.release(), Ok(false));
        assert_eq!(HoldState::Committed.release(), Err(HoldOver::Committed));
        assert_eq!(HoldState::Released.commit(), Err(HoldOver::Released));
    }
}
