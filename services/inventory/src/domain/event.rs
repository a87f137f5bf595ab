//! Events and sectors: who may see and change them, and the transitions of an event's state.

use std::collections::HashMap;

use onsale_types::{Currency, EventId, Money, Named as _, OrganizerId, SectorId, Timestamp};

use super::{counts::Counts, layout::SeatLayout};

/// Life of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum EventState {
    /// Only its organizer sees and changes it.
    Draft,
    /// Public; units are sold from its on-sale time.
    OnSale,
    /// Public; no new reservations.
    Paused,
    /// No unit is free or held.
    SoldOut,
    /// Final: no new reservations, but held units may still be paid for.
    Ended,
}

impl EventState {
    /// Decides the effect of `ActivateEvent`.
    pub(crate) fn activate(self) -> Result<Move, IllegalMove> {
        match self {
            Self::Draft | Self::Paused => Ok(Move::To(Self::OnSale)),
            Self::OnSale => Ok(Move::Stay),
            Self::SoldOut | Self::Ended => Err(IllegalMove { state: self }),
        }
    }

    /// Decides the effect of `EndEvent`.
    pub(crate) fn end(self) -> Result<Move, IllegalMove> {
        match self {
            Self::OnSale | Self::Paused | Self::SoldOut => Ok(Move::To(Self::Ended)),
            Self::Ended => Ok(Move::Stay),
            Self::Draft => Err(IllegalMove { state: self }),
        }
    }

    /// Decides the effect of the last unit being sold.
    #[must_use]
    pub(crate) fn sell_out(self) -> Move {
        match self {
            Self::OnSale | Self::Paused => Move::To(Self::SoldOut),
            Self::Draft | Self::SoldOut | Self::Ended => Move::Stay,
        }
    }

    /// Decides the effect of units becoming free.
    #[must_use]
    pub(crate) fn make_available(self) -> Move {
        match self {
            Self::SoldOut => Move::To(Self::OnSale),
            Self::Draft | Self::OnSale | Self::Paused | Self::Ended => Move::Stay,
        }
    }
}

/// The decision about a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    To(EventState),
    /// The event is in the target state already, or the change does not concern its state.
    Stay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event is {}, which does not allow this change", state.name())]
pub(crate) struct IllegalMove {
    pub(crate) state: EventState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Venue {
    pub(crate) name: String,
    /// One line; may be empty.
    pub(crate) address: String,
    /// IANA name.
    pub(crate) time_zone: String,
}

/// The data that an organizer gives about an event, except its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) name: String,
    /// Text for customers; may be empty.
    pub(crate) description: String,
    pub(crate) venue: Venue,
    pub(crate) start_time: Timestamp,
    /// Time from which units are sold. `None`: from the activation on.
    pub(crate) on_sale_time: Option<Timestamp>,
    /// Currency of all prices.
    pub(crate) currency: Currency,
    pub(crate) units_per_customer_max: u32,
}

/// A priced part of the venue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sector {
    pub(crate) id: SectorId,
    pub(crate) name: String,
    /// Price of one unit.
    pub(crate) price: Money,
    /// Number of units; they are numbered from 1.
    pub(crate) capacity: u32,
    /// `None`: general admission.
    pub(crate) layout: Option<SeatLayout>,
}

/// A sector as an organizer asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectorDraft {
    /// Id of an existing sector. `None`: a new one.
    pub(crate) id: Option<SectorId>,
    pub(crate) name: String,
    /// Price of one unit.
    pub(crate) price: Money,
    pub(crate) capacity: u32,
    /// `None`: general admission.
    pub(crate) layout: Option<SeatLayout>,
}

/// A complete event as an organizer asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) details: Details,
    pub(crate) sectors: Vec<SectorDraft>,
}

/// An update names a sector that the draft does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event has no sector {0}")]
pub(crate) struct UnknownSector(pub(crate) SectorId);

impl Draft {
    /// Assigns the sector ids: a sector with an id must be among `present`, the others get new ids.
    pub(crate) fn assign_ids(self, present: &[Sector]) -> Result<(Details, Vec<Sector>), UnknownSector> {
        let sectors = self.sectors.into_iter().map(|draft| {
            let SectorDraft { id, name, price, capacity, layout } = draft;
            let id = match id {
                Some(id) if present.iter().any(|sector| sector.id == id) => id,
                Some(id) => return Err(UnknownSector(id)),
                None => SectorId::generate(),
            };
            Ok(Sector { id, name, price, capacity, layout })
        });
        Ok((self.details, sectors.collect::<Result<_, _>>()?))
    }
}

/// The parts of an event that reservations need. They never change once the event is public.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    pub(crate) units_per_customer_max: u32,
    pub(crate) sectors: Vec<Sector>,
}

impl Offer {
    pub(crate) fn sector(&self, sector_id: SectorId) -> Option<&Sector> {
        self.sectors.iter().find(|sector| sector.id == sector_id)
    }
}

/// A stored event without its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    pub(crate) organizer_id: OrganizerId,
    pub(crate) state: EventState,
    pub(crate) details: Details,
    /// Units of all sectors together.
    pub(crate) capacity: u32,
    /// Rises with every change of the event, but not of its stock.
    pub(crate) revision: u64,
    pub(crate) create_time: Timestamp,
    pub(crate) update_time: Timestamp,
    /// Time of the first activation.
    pub(crate) activate_time: Option<Timestamp>,
    pub(crate) end_time: Option<Timestamp>,
}

/// A caller that reads an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Viewer {
    /// A customer, or a caller without a token.
    Anyone,
    Organizer(OrganizerId),
    /// Another service.
    Mesh,
}

/// The answer to an organizer who does not own an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnershipError {
    /// The event is another organizer's draft, so its existence is not revealed.
    NotFound,
    NotOwner,
}

impl Event {
    /// Returns true if `viewer` may see the event: drafts are visible to their organizer and the mesh only.
    #[must_use]
    pub(crate) fn is_visible_to(&self, viewer: Viewer) -> bool {
        match viewer {
            Viewer::Mesh => true,
            Viewer::Organizer(organizer_id) if organizer_id == self.organizer_id => true,
            Viewer::Organizer(_) | Viewer::Anyone => self.state != EventState::Draft,
        }
    }

    /// Refuses an organizer who does not own the event.
    pub(crate) fn check_owner(&self, organizer_id: OrganizerId) -> Result<(), OwnershipError> {
        if organizer_id == self.organizer_id {
            Ok(())
        } else if self.is_visible_to(Viewer::Organizer(organizer_id)) {
            Err(OwnershipError::NotOwner)
        } else {
            Err(OwnershipError::NotFound)
        }
    }

    /// Returns true if the public may reserve units at `now`.
    #[must_use]
    pub(crate) fn is_selling_at(&self, now: Timestamp) -> bool {
        self.state == EventState::OnSale && self.details.on_sale_time.is_none_or(|begin| begin <= now)
    }

    /// Returns true if invitees may reserve units. They need not wait for the on-sale time, and a sold-out public sale does not
    /// affect their quota.
    #[must_use]
    pub(crate) fn is_selling_to_invitees(&self) -> bool {
        match self.state {
            EventState::OnSale | EventState::SoldOut => true,
            EventState::Draft | EventState::Paused | EventState::Ended => false,
        }
    }

    /// Returns the revision of the event's stock, whose counts are `counts`. It rises with every change of the event or of a
    /// sector.
    #[must_use]
    pub(crate) fn stock_revision(&self, counts: &HashMap<SectorId, Counts>) -> u64 {
        counts.values().fold(self.revision, |sum, counts| sum.saturating_add(counts.revision))
    }
}

#[cfg(test)]
mod tests {
    use onsale_types::Named as _;

    use super::*;

    #[test]
    fn event_states_change_as_the_contract_defines() {
        use EventState::{Draft, Ended, OnSale, Paused, SoldOut};
        let illegal = |state| Err(IllegalMove { state });
        let stay = Move::Stay;
        for (state, activate, end, sell_out, make_available) in [
            (Draft, Ok(Move::To(OnSale)), illegal(Draft), stay, stay),
            (OnSale, Ok(stay), Ok(Move::To(Ended)), Move::To(SoldOut), stay),
            (Paused, Ok(Move::To(OnSale)), Ok(Move::To(Ended)), Move::To(SoldOut), stay),
            (SoldOut, illegal(SoldOut), Ok(Move::To(Ended)), stay, Move::To(OnSale)),
            (Ended, illegal(Ended), Ok(stay), stay, stay),
        ] {
            assert_eq!(state.activate(), activate, "{state:?}");
            assert_eq!(state.end(), end, "{state:?}");
            assert_eq!(state.sell_out(), sell_out, "{state:?}");
            assert_eq!(state.make_available(), make_available, "{state:?}");
            assert_eq!(EventState::from_name(state.name()), Some(state));
        }
        assert_eq!(EventState::from_name("GONE"), None);
    }
}
