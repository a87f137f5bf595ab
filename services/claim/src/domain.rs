//! What a claim is and what may happen to it. Pure: no I/O, no clock, no wire format.

mod allowance;
mod claim;
mod life;
mod selection;
mod turn;

pub use allowance::{Allowance, LimitExceeded};
pub use claim::{Buyer, Claim, EventSummary, Item, Reservation, Seat, Transition, Unit, expire_time, total};
pub use life::{HoldState, Life, Paid, PaidByAnother, ReleaseReason, Stage, State, Step};
pub use selection::{Selection, Wanted, unit_count};
pub use turn::{Turn, TurnError, TurnToken};
