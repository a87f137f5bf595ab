//! What a claim is and what may happen to it. Pure: no I/O, no clock, no wire format.

mod allowance;
mod claim;
mod cooldown;
mod lifecycle;
mod lifetime;
mod selection;
mod turn;

pub use allowance::{Allowance, LimitExceeded};
pub use claim::{Buyer, Claim, EventSummary, Item, Origin, Reservation, Seat, Transition, Unit, total};
pub use cooldown::{Abandonment, CooldownRule};
pub use lifecycle::{HoldState, Life, Paid, PaidByAnother, ReleaseReason, Stage, State, Step};
pub use lifetime::Lifetime;
pub use selection::{Selection, Wanted, unit_count};
pub use turn::{Turn, TurnError, TurnToken};
