//! Client of Queue, the authority on turns.

use std::sync::LazyLock;

use onsale_kit::{client::Channel, error::Reason};
use onsale_proto::queue::v1::{ErrorReason, queue_internal_service_client::QueueInternalServiceClient};
use onsale_types::Timestamp;

use super::Error;
use crate::{convert::clients as convert, domain::Turn};

const NAME: &str = "queue";

/// Reasons of Queue that Claim passes on to its own callers.
static PASSED_ON: LazyLock<[Reason; 4]> = LazyLock::new(|| {
    [ErrorReason::TurnExpired, ErrorReason::TurnStale, ErrorReason::TurnEnded, ErrorReason::CustomerBlocked]
        .map(|reason| Reason::from_proto(reason.as_str_name()))
});

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    client: QueueInternalServiceClient<Channel>,
}

impl Queue {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { client: QueueInternalServiceClient::new(channel) }
    }

    /// Returns the end of the turn if it is valid, or `None` if the customer never joined, so that the token cannot be genuine.
    pub(crate) async fn validate_turn(&self, turn: &Turn) -> Result<Option<Timestamp>, Error> {
        let response = match self.client.clone().validate_turn(convert::validate_turn(turn)).await {
            Ok(response) => response.into_inner(),
            Err(status) => {
                let not_joined = Reason::from_proto(ErrorReason::EntryNotFound.as_str_name());
                let has_joined = super::reason_of(&status).as_deref() != Some(not_joined.as_str());
                return if has_joined { Err(Error::of(NAME, status, &*PASSED_ON)) } else { Ok(None) };
            }
        };
        let end = convert::turn_end(response);
        end.map(Some).map_err(|what| Error::Response { neighbor: NAME, what })
    }
}
