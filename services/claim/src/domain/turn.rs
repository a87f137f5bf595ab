//! A turn, as its token says it.

use onsale_types::{CustomerId, EventId, Timestamp};

/// What a genuine turn token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnToken {
    /// Whose turn it is.
    pub customer: CustomerId,
    /// In which event.
    pub event: EventId,
    /// Which of the customer's turns.
    pub fencing_number: u64,
    /// When the turn ends, as far as the token knows.
    pub expire_time: Timestamp,
}

/// A turn that fits the request; whether it still holds, Queue says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose it is.
    pub customer: CustomerId,
    /// In which event.
    pub event: EventId,
    /// Which of the customer's turns.
    pub fencing_number: u64,
}

/// Why a token gives no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnError {
    /// It is of another event or customer.
    Foreign,
    /// The turn ran out.
    Expired {
        /// When.
        expire_time: Timestamp,
    },
}

impl TurnToken {
    /// The turn, if it is `customer`'s in `event` and has not ended at `now`.
    pub fn check(self, customer: CustomerId, event: EventId, now: Timestamp) -> Result<Turn, TurnError> {
        if self.customer != customer || self.event != event || self.fencing_number == 0 {
            return Err(TurnError::Foreign);
        }
        if self.expire_time <= now {
            return Err(TurnError::Expired { expire_time: self.expire_time });
        }
        Ok(Turn { customer, event, fencing_number: self.fencing_number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_serves_its_own_customer_in_its_own_event_until_it_ends() {
        let (customer, event) = (CustomerId::generate(), EventId::generate());
        let expire_time = Timestamp::from_secs(60);
        let token = TurnToken { customer, event, fencing_number: 3, expire_time };
        let before = Timestamp::from_secs(59);
        assert_eq!(token.check(customer, event, before), Ok(Turn { customer, event, fencing_number: 3 }));
        assert_eq!(token.check(CustomerId::generate(), event, before), Err(TurnError::Foreign));
        assert_eq!(token.check(customer, EventId::generate(), before), Err(TurnError::Foreign));
        assert_eq!(token.check(customer, event, expire_time), Err(TurnError::Expired { expire_time }));
        let unnumbered = TurnToken { fencing_number: 0, ..token };
        assert_eq!(unnumbered.check(customer, event, before), Err(TurnError::Foreign));
    }
}
