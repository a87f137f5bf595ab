//! Ids of stream entries: `millis-sequence`, ordered.

use std::{fmt, str::FromStr};

use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, Value};

/// Id of an entry. In ids of our own, the first part is any number that orders the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// First part; Unix milliseconds in ids from Redis.
    pub millis: u64,
    /// Second part, which orders entries of the same millisecond.
    pub sequence: u64,
}

/// A text that is not a stream id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a stream id")]
pub struct StreamIdError {
    /// Text that failed to parse.
    pub text: String,
}

impl StreamId {
    /// Lowest id, before every entry.
    pub const ZERO: Self = Self { millis: 0, sequence: 0 };
    /// Highest id, after every entry.
    pub const MAX: Self = Self { millis: u64::MAX, sequence: u64::MAX };

    /// Creates the id `millis-sequence`.
    #[must_use]
    pub const fn new(millis: u64, sequence: u64) -> Self {
        Self { millis, sequence }
    }

    /// Returns the next higher id; `None` after [`StreamId::MAX`].
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(Self { sequence, ..self }),
            None => Some(Self { millis: self.millis.checked_add(1)?, sequence: 0 }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.millis, self.sequence)
    }
}

impl FromStr for StreamId {
    type Err = StreamIdError;

    fn from_str(text: &str) -> Result<Self, StreamIdError> {
        let wrong = || StreamIdError { text: text.to_owned() };
        let (millis, sequence) = text.split_once('-').ok_or_else(wrong)?;
        Ok(Self {
            millis: millis.parse().map_err(|_error| wrong())?,
            sequence: sequence.parse().map_err(|_error| wrong())?,
        })
    }
}

impl ToRedisArgs for StreamId {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl FromRedisValue for StreamId {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let text = String::from_redis_value(value)?;
        text.parse().map_err(|error: StreamIdError| ParsingError::from(error.to_string()))
    }
}
