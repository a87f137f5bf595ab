//! Between the contract's messages and the domain's types: the only files that name both.

pub(crate) mod events;
pub(crate) mod external;
pub(crate) mod requests;
pub(crate) mod responses;

use std::time::Duration;

use onsale_types::Timestamp;

pub(crate) fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

pub(crate) fn read_timestamp(time: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::from_seconds_and_nanos(time.seconds, time.nanos)
}

pub(crate) fn duration(span: Duration) -> prost_types::Duration {
    // Out of range only beyond ten thousand years.
    prost_types::Duration::try_from(span).unwrap_or_default()
}
