//! `GetPayment`: grpc → app → store::payments, and for organizers → clients::inventory.

use super::App;
use crate::{
    domain::{Payment, PaymentLookup, Viewer},
    error::Error,
    store::payments,
};

impl App {
    /// Returns a payment. One that `viewer` may not see is reported as not found.
    pub(crate) async fn get_payment(&self, viewer: Viewer, lookup: PaymentLookup) -> Result<Payment, Error> {
        let postgres = &self.stores.postgres;
        let (found, not_found) = match lookup {
            PaymentLookup::Payment(payment_id) => {
                (payments::get(postgres, payment_id).await?, Error::PaymentNotFound { payment_id })
            }
            PaymentLookup::Claim(claim_id) => {
                (payments::newest_of_claim(postgres, claim_id).await?, Error::ClaimHasNoPayment { claim_id })
            }
        };
        let Some(payment) = found else { return Err(not_found) };
        if self.may_see(viewer, &payment).await? { Ok(payment) } else { Err(not_found) }
    }

    /// Returns true for a service, for the payment's customer and for the organizer of its event.
    async fn may_see(&self, viewer: Viewer, payment: &Payment) -> Result<bool, Error> {
        if viewer.is_service || viewer.customer_id == Some(payment.customer_id) {
            return Ok(true);
        }
        match viewer.organizer_id {
            Some(organizer_id) => {
                Ok(self.inventory.organizer_of(payment.event_id).await? == Some(organizer_id))
            }
            None => Ok(false),
        }
    }
}
