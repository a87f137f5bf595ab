//! Whom Payment asks: its neighbours in the mesh, and the providers outside.

mod claim;
mod inventory;
mod neighbor;
pub mod providers;
mod ticketing;

pub use claim::Claims;
pub use inventory::Events;
pub use neighbor::NeighbourError;
pub use providers::{PaymentProvider, ProviderError, Providers};
pub use ticketing::{Tickets, VoidError};
