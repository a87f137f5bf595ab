//! Whom Payment asks: its neighbors in the mesh, and the providers outside.

mod claims;
mod events;
mod neighbor;
pub mod providers;
mod tickets;

pub use claims::Claims;
pub use events::Events;
pub use neighbor::NeighborError;
pub use providers::{PaymentProvider, ProviderError, Providers};
pub use tickets::{Tickets, VoidError};
