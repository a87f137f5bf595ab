//! Clients of the neighbors Claim, Inventory and Ticketing, and of the payment providers.

mod claim;
mod inventory;
mod neighbor;
mod providers;
mod ticketing;

pub(crate) use claim::ClaimClient;
pub(crate) use inventory::InventoryClient;
pub(crate) use neighbor::NeighborError;
pub(crate) use providers::{
    PaymentProvider, ProviderError, Providers, RawWebhook, Stripe, StripeSettings, Webhook, WebhookError,
};
pub(crate) use ticketing::{TicketingClient, VoidError};
