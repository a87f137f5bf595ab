//! GetPayment, and who may see a payment: its customer, the organizer of its event, other services.

use onsale_types::{CustomerId, OrganizerId};

use super::App;
use crate::{convert::Lookup, domain::Payment, error::Error, store::payments};

/// Who looks. Somebody may be a customer and an organizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Viewer {
    /// Whether it is a service of the mesh.
    pub is_service: bool,
    /// Who they are as a customer.
    pub customer: Option<CustomerId>,
    /// Who they are as an organizer.
    pub organizer: Option<OrganizerId>,
}

impl App {
    /// One payment, if `viewer` may see it.
    pub async fn get_payment(&self, viewer: Viewer, lookup: Lookup) -> Result<Payment, Error> {
        let postgres = &self.stores.postgres;
        let (found, missing) = match lookup {
            Lookup::Payment(id) => {
                (payments::get(postgres, id).await?, Error::PaymentNotFound { payment_id: id })
            }
            Lookup::Claim(id) => {
                (payments::newest(postgres, id).await?, Error::ClaimHasNoPayment { claim_id: id })
            }
        };
        let Some(payment) = found else { return Err(missing) };
        if self.may_see(viewer, &payment).await? { Ok(payment) } else { Err(missing) }
    }

    async fn may_see(&self, viewer: Viewer, payment: &Payment) -> Result<bool, Error> {
        if viewer.is_service || viewer.customer == Some(payment.customer_id) {
            return Ok(true);
        }
        match viewer.organizer {
            Some(organizer) => Ok(self.events.organizer(payment.event_id).await? == Some(organizer)),
            None => Ok(false),
        }
    }
}
