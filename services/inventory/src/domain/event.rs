//! An event, its sectors, who may see and steer it, and the moves of its state.

use onsale_types::{Currency, EventId, Money, OrganizerId, SectorId, Timestamp};

use super::layout::SeatLayout;

/// Where an event is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// Seen and changed by its organizer only.
    Draft,
    /// Activated: public, and sold from its time on.
    OnSale,
    /// The sale is halted.
    Paused,
    /// Nothing is free and nothing is held.
    SoldOut,
    /// The sale is over for good.
    Ended,
}

impl EventState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Draft, Self::OnSale, Self::Paused, Self::SoldOut, Self::Ended];

    /// Its name, in the store and in an error's metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Draft => "DRAFT",
            Self::OnSale => "ON_SALE",
            Self::Paused => "PAUSED",
            Self::SoldOut => "SOLD_OUT",
            Self::Ended => "ENDED",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// What `ActivateEvent` does.
    pub fn activate(self) -> Result<Move, IllegalMove> {
        match self {
            Self::Draft | Self::Paused => Ok(Move::To(Self::OnSale)),
            Self::OnSale => Ok(Move::Stay),
            Self::SoldOut | Self::Ended => Err(IllegalMove { state: self }),
        }
    }

    /// What `EndEvent` does.
    pub fn end(self) -> Result<Move, IllegalMove> {
        match self {
            Self::OnSale | Self::Paused | Self::SoldOut => Ok(Move::To(Self::Ended)),
            Self::Ended => Ok(Move::Stay),
            Self::Draft => Err(IllegalMove { state: self }),
        }
    }

    /// What it means that the last unit was sold.
    #[must_use]
    pub fn sell_out(self) -> Move {
        match self {
            Self::OnSale | Self::Paused => Move::To(Self::SoldOut),
            Self::Draft | Self::SoldOut | Self::Ended => Move::Stay,
        }
    }

    /// What it means that units came back.
    #[must_use]
    pub fn take_back(self) -> Move {
        match self {
            Self::SoldOut => Move::To(Self::OnSale),
            Self::Draft | Self::OnSale | Self::Paused | Self::Ended => Move::Stay,
        }
    }
}

/// What becomes of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It changes.
    To(EventState),
    /// It is there already, or not concerned.
    Stay,
}

/// The state does not allow the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event that is {} cannot make this move", state.name())]
pub struct IllegalMove {
    /// The state it is in.
    pub state: EventState,
}

/// Where an event takes place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Venue {
    /// Its name.
    pub name: String,
    /// Its address on one line; may be empty.
    pub address: String,
    /// IANA name of its time zone.
    pub time_zone: String,
}

/// What an organizer says about an event, besides its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// Its name.
    pub name: String,
    /// Text for customers; may be empty.
    pub description: String,
    /// Where it takes place.
    pub venue: Venue,
    /// When it starts.
    pub start_time: Timestamp,
    /// From when on units are sold. None: from its activation on.
    pub on_sale_time: Option<Timestamp>,
    /// Of all its prices.
    pub currency: Currency,
    /// Most units a customer may buy.
    pub units_per_customer_max: u32,
}

/// A priced part of the venue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sector {
    /// Its id.
    pub id: SectorId,
    /// Its name.
    pub name: String,
    /// Of one unit.
    pub price: Money,
    /// How many units it has.
    pub capacity: u32,
    /// Its rows and seats. None: general admission.
    pub layout: Option<SeatLayout>,
}

/// A sector as an organizer asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectorDraft {
    /// The sector that stays. None: a new one.
    pub id: Option<SectorId>,
    /// Its name.
    pub name: String,
    /// Of one unit.
    pub price: Money,
    /// How many units it has.
    pub capacity: u32,
    /// Its rows and seats. None: general admission.
    pub layout: Option<SeatLayout>,
}

/// All that an organizer says about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Besides its sectors.
    pub details: Details,
    /// Its sectors, in order.
    pub sectors: Vec<SectorDraft>,
}

/// An update names a sector that the draft has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event has no sector {0}")]
pub struct UnknownSector(pub SectorId);

impl Draft {
    /// The sectors with their ids: those that stay must be among `present`, the others get new ones.
    pub fn settle(self, present: &[Sector]) -> Result<(Details, Vec<Sector>), UnknownSector> {
        let settled = self.sectors.into_iter().map(|draft| {
            let SectorDraft { id, name, price, capacity, layout } = draft;
            let id = match id {
                Some(id) if present.iter().any(|sector| sector.id == id) => id,
                Some(id) => return Err(UnknownSector(id)),
                None => SectorId::generate(),
            };
            Ok(Sector { id, name, price, capacity, layout })
        });
        Ok((self.details, settled.collect::<Result<_, _>>()?))
    }
}

/// An event as it is kept, without its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Whose it is.
    pub organizer_id: OrganizerId,
    /// Where it is in its life.
    pub state: EventState,
    /// What its organizer says about it.
    pub details: Details,
    /// Units of all sectors together.
    pub capacity: u32,
    /// Rises with every change.
    pub revision: u64,
    /// When it was created.
    pub create_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
    /// When it was activated.
    pub activate_time: Option<Timestamp>,
    /// When its sale ended.
    pub end_time: Option<Timestamp>,
}

/// Who looks at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Anybody, also without a token.
    Anyone,
    /// An organizer.
    Organizer(OrganizerId),
    /// Another service.
    Mesh,
}

/// Why somebody may not steer an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipError {
    /// It is another's draft: not even its existence is told.
    NotFound,
    /// It is another's.
    NotOwner,
}

impl Event {
    /// Whether `viewer` may know of it.
    #[must_use]
    pub fn is_visible_to(&self, viewer: Viewer) -> bool {
        match viewer {
            Viewer::Mesh => true,
            Viewer::Organizer(organizer_id) if organizer_id == self.organizer_id => true,
            Viewer::Organizer(_) | Viewer::Anyone => self.state != EventState::Draft,
        }
    }

    /// Whether `organizer_id` may steer it.
    pub fn check_owner(&self, organizer_id: OrganizerId) -> Result<(), OwnershipError> {
        if organizer_id == self.organizer_id {
            Ok(())
        } else if self.is_visible_to(Viewer::Organizer(organizer_id)) {
            Err(OwnershipError::NotOwner)
        } else {
            Err(OwnershipError::NotFound)
        }
    }

    /// Whether units may be reserved at `now`.
    #[must_use]
    pub fn is_selling_at(&self, now: Timestamp) -> bool {
        self.state == EventState::OnSale && self.details.on_sale_time.is_none_or(|begin| begin <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_moves_as_its_contract_says() {
        use EventState::{Draft, Ended, OnSale, Paused, SoldOut};
        let illegal = |state| Err(IllegalMove { state });
        let stay = Move::Stay;
        for (state, activate, end, sell_out, take_back) in [
            (Draft, Ok(Move::To(OnSale)), illegal(Draft), stay, stay),
            (OnSale, Ok(stay), Ok(Move::To(Ended)), Move::To(SoldOut), stay),
            (Paused, Ok(Move::To(OnSale)), Ok(Move::To(Ended)), Move::To(SoldOut), stay),
            (SoldOut, illegal(SoldOut), Ok(Move::To(Ended)), stay, Move::To(OnSale)),
            (Ended, illegal(Ended), Ok(stay), stay, stay),
        ] {
            assert_eq!(state.activate(), activate, "{state:?}");
            assert_eq!(state.end(), end, "{state:?}");
            assert_eq!(state.sell_out(), sell_out, "{state:?}");
            assert_eq!(state.take_back(), take_back, "{state:?}");
            assert_eq!(EventState::from_name(state.name()), Some(state));
        }
        assert_eq!(EventState::from_name("GONE"), None);
    }
}
