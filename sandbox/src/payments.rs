//! A payment provider that speaks the dialect of Stripe: checkout sessions, refunds, signed webhooks.
