//! Conversions between protobuf's well-known and shared messages and the types of `onsale_types`. Every value that came from
//! outside is range-checked here, and nowhere else.

use std::time::Duration;

use onsale_types::{Currency, Money, Timestamp};

use crate::r#type::v1 as pb;

/// The longest span that protobuf allows: about 10,000 years.
const DURATION_SECONDS_MAX: u64 = 315_576_000_000;

/// A `google.protobuf.Timestamp` outside the years 1 to 9999, or with nanoseconds that are not part of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a time of the years 1 to 9999")]
pub struct TimeOutOfRange;

/// A `google.protobuf.Duration` that is negative, longer than 10,000 years, or has nanoseconds that are not part of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a duration of 0 s to 10,000 years")]
pub struct DurationOutOfRange;

/// An amount of money that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMoney {
    /// The amount is below 0.
    #[error("must not be negative")]
    Negative,
    /// The currency code is not three upper-case letters.
    #[error("has no valid currency code")]
    Currency,
}

/// Encodes a time.
#[must_use]
pub fn time_to_pb(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.to_seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

/// Reads a time; parts of a microsecond are cut off.
pub fn time_from_pb(time: prost_types::Timestamp) -> Result<Timestamp, TimeOutOfRange> {
    Timestamp::from_seconds_and_nanos(time.seconds, time.nanos).ok_or(TimeOutOfRange)
}

/// Encodes a span; one beyond 10,000 years becomes 10,000 years.
#[must_use]
pub fn duration_to_pb(span: Duration) -> prost_types::Duration {
    let span = span.min(Duration::from_secs(DURATION_SECONDS_MAX));
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(span.subsec_nanos()).unwrap_or_default();
    prost_types::Duration { seconds, nanos }
}

/// Reads a span. Unlike the conversion of `prost-types`, it never negates a value and so cannot panic on `i64::MIN`.
pub fn duration_from_pb(span: prost_types::Duration) -> Result<Duration, DurationOutOfRange> {
    let seconds = u64::try_from(span.seconds).ok().filter(|seconds| *seconds <= DURATION_SECONDS_MAX);
    let nanos = u32::try_from(span.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    seconds.zip(nanos).map(|(seconds, nanos)| Duration::new(seconds, nanos)).ok_or(DurationOutOfRange)
}

/// Encodes an amount.
#[must_use]
pub fn money_to_pb(money: Money) -> pb::Money {
    pb::Money { amount_minor: money.amount_minor(), currency_code: money.currency().code().to_owned() }
}

/// Reads an amount of at least 0.
pub fn money_from_pb(money: &pb::Money) -> Result<Money, InvalidMoney> {
    if money.amount_minor < 0 {
        return Err(InvalidMoney::Negative);
    }
    let currency = Currency::parse(&money.currency_code).map_err(|_malformed| InvalidMoney::Currency)?;
    Ok(Money::new(money.amount_minor, currency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_survive_both_ways_up_to_the_longest() {
        for span in [Duration::ZERO, Duration::new(1, 999_999_999), Duration::from_secs(DURATION_SECONDS_MAX)]
        {
            assert_eq!(duration_from_pb(duration_to_pb(span)), Ok(span));
        }
        assert_eq!(duration_to_pb(Duration::MAX), duration_to_pb(Duration::from_secs(DURATION_SECONDS_MAX)));
    }

    #[test]
    fn extreme_spans_are_refused_without_a_panic() {
        for (seconds, nanos) in
            [(i64::MIN, i32::MIN), (i64::MAX, 0), (-1, 0), (0, -1), (0, 1_000_000_000), (315_576_000_001, 0)]
        {
            assert_eq!(duration_from_pb(prost_types::Duration { seconds, nanos }), Err(DurationOutOfRange));
        }
    }

    #[test]
    fn extreme_times_are_refused_and_epoch_survives() {
        for (seconds, nanos) in [(i64::MIN, 0), (i64::MAX, 0), (0, -1), (0, i32::MAX)] {
            assert_eq!(time_from_pb(prost_types::Timestamp { seconds, nanos }), Err(TimeOutOfRange));
        }
        assert_eq!(time_from_pb(time_to_pb(Timestamp::EPOCH)), Ok(Timestamp::EPOCH));
    }

    #[test]
    fn money_needs_a_currency_and_at_least_zero() {
        let money = |amount_minor, code: &str| pb::Money { amount_minor, currency_code: code.to_owned() };
        let read = money_from_pb(&money(0, "EUR")).expect("zero euros are money");
        assert_eq!(money_to_pb(read), money(0, "EUR"));
        assert_eq!(money_from_pb(&money(-1, "EUR")), Err(InvalidMoney::Negative));
        assert_eq!(money_from_pb(&money(1, "eur")), Err(InvalidMoney::Currency));
    }
}
