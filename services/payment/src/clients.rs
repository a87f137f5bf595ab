//! Whom Payment asks: its neighbours in the mesh, and the providers outside.

mod claims;
mod events;
mod neighbour;
pub mod providers;
mod tickets;

pub use claims::Claims;
pub use events::Events;
pub use neighbour::NeighbourError;
pub use providers::{PaymentProvider, ProviderError, Providers};
pub use tickets::{Tickets, VoidError};
