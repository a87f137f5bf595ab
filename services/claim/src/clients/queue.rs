//! Queue: whether a turn still holds.

use std::sync::LazyLock;

use onsale_kit::{client::Channel, error::Reason};
use onsale_proto::queue::v1::{
    ErrorReason, ValidateTurnRequest, queue_internal_service_client::QueueInternalServiceClient,
};
use onsale_types::Timestamp;

use super::Error;
use crate::{convert, domain::Turn};

const NAME: &str = "queue";

/// What Claim passes on of what Queue says.
static PASSED_ON: LazyLock<[Reason; 4]> = LazyLock::new(|| {
    [ErrorReason::TurnExpired, ErrorReason::TurnStale, ErrorReason::TurnEnded, ErrorReason::CustomerBlocked]
        .map(|reason| Reason::from_proto(reason.as_str_name()))
});

/// What Queue says about a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It holds.
    Until(Timestamp),
    /// The customer never joined: the token cannot be from this queue.
    Unknown,
}

/// The client.
#[derive(Clone, Debug)]
pub struct Queue {
    client: QueueInternalServiceClient<Channel>,
}

impl Queue {
    /// Calls over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { client: QueueInternalServiceClient::new(channel) }
    }

    /// Asks whether `turn` still holds, and until when.
    pub async fn validate_turn(&self, turn: &Turn) -> Result<Validity, Error> {
        let request = ValidateTurnRequest {
            event_id: turn.event.to_string(),
            customer_id: turn.customer.to_string(),
            fencing_number: turn.fencing_number,
        };
        let answered = self.client.clone().validate_turn(request).await;
        let answer = match answered {
            Ok(answer) => answer.into_inner(),
            Err(status) => {
                let unknown = Reason::from_proto(ErrorReason::EntryNotFound.as_str_name());
                let is_unknown = super::reason_of(&status).as_deref() == Some(unknown.as_str());
                return if is_unknown {
                    Ok(Validity::Unknown)
                } else {
                    Err(Error::of(NAME, status, &*PASSED_ON))
                };
            }
        };
        convert::timestamp(answer.expire_time)
            .map(Validity::Until)
            .ok_or(Error::Answer { neighbor: NAME, what: "expire_time" })
    }
}
