//! Points in time: microseconds since the Unix epoch, the precision of Postgres. Arithmetic is checked; nothing in this file
//! reads the clock (see [`crate::Clock`]).

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

const MICROS_PER_SECOND: i64 = 1_000_000;
const NANOS_PER_MICRO: i32 = 1_000;
const NANOS_PER_SECOND: i32 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// First second of year 1: the lower bound of Protobuf's `Timestamp` and of RFC 3339.
const WIRE_SECONDS_MIN: i64 = -62_135_596_800;
/// Last second of year 9999: the upper bound of Protobuf's `Timestamp` and of RFC 3339.
const WIRE_SECONDS_MAX: i64 = 253_402_300_799;

/// Point in time with microsecond precision. In JSON it is a number of microseconds; `Display` prints RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// Creates the point `micros` microseconds after the epoch, or before it if negative.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the epoch; negative before it.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Creates the point `seconds` seconds after the epoch, limited to the range of the type.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS_PER_SECOND))
    }

    /// Converts from the seconds and nanoseconds of wire formats, truncating to microseconds. Returns `None` if the
    /// nanoseconds are not within 0 to 999,999,999 or the point is outside the years 1 to 9999.
    #[must_use]
    pub fn from_seconds_and_nanos(seconds: i64, nanos: i32) -> Option<Self> {
        let on_the_wire = (WIRE_SECONDS_MIN..=WIRE_SECONDS_MAX).contains(&seconds);
        if !on_the_wire || !(0..NANOS_PER_SECOND).contains(&nanos) {
            return None;
        }
        let micros = i64::from(nanos / NANOS_PER_MICRO);
        seconds.checked_mul(MICROS_PER_SECOND)?.checked_add(micros).map(Self)
    }

    /// Converts to the seconds and nanoseconds of wire formats: the nanoseconds count forward, also before the epoch.
    #[must_use]
    pub fn to_seconds_and_nanos(self) -> (i64, i32) {
        let micros = self.0.rem_euclid(MICROS_PER_SECOND);
        let nanos = i32::try_from(micros).unwrap_or(0).saturating_mul(NANOS_PER_MICRO);
        (self.0.div_euclid(MICROS_PER_SECOND), nanos)
    }

    /// Converts from the operating system's form, which the Postgres driver uses too. Returns `None` if out of range.
    #[must_use]
    pub fn from_system_time(time: SystemTime) -> Option<Self> {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).ok().map(Self),
            Err(before) => {
                let before = before.duration();
                // Round towards the past on both sides of the epoch, so that order is kept.
                let micros = i64::try_from(before.as_nanos().div_ceil(1_000)).ok()?;
                micros.checked_neg().map(Self)
            }
        }
    }

    /// Converts to the operating system's form. Returns `None` if the system cannot represent the point.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let span = Duration::from_micros(self.0.unsigned_abs());
        if self.0 < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) }
    }

    /// Returns the point `span` later, or `None` past the end of the type. The span is truncated to microseconds.
    #[must_use]
    pub fn checked_add(self, span: Duration) -> Option<Self> {
        self.0.checked_add(i64::try_from(span.as_micros()).ok()?).map(Self)
    }

    /// Returns the point `span` earlier, or `None` before the start of the type. The span is truncated to microseconds.
    #[must_use]
    pub fn checked_sub(self, span: Duration) -> Option<Self> {
        self.0.checked_sub(i64::try_from(span.as_micros()).ok()?).map(Self)
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later than this point.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        if earlier >= self { Duration::ZERO } else { Duration::from_micros(self.0.abs_diff(earlier.0)) }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(MICROS_PER_SECOND);
        let micros = self.0.rem_euclid(MICROS_PER_SECOND);
        let (year, month, day) = civil_date(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// Converts a day counted from the epoch to year, month and day of the Gregorian calendar. It counts years from March, so
/// that the leap day is the last day of its year, and days within eras of 400 years, after which the calendar repeats.
fn civil_date(day_of_epoch: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    const DAYS_FROM_YEAR_ZERO: i64 = 719_468;
    let days = day_of_epoch + DAYS_FROM_YEAR_ZERO;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamp_prints_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.000000Z"),
            (WIRE_SECONDS_MIN, "0001-01-01T00:00:00.000000Z"),
            (WIRE_SECONDS_MAX, "9999-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(Timestamp::from_secs(seconds).to_string(), text);
        }
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn wire_form_out_of_range_is_refused() {
        assert_eq!(Timestamp::from_seconds_and_nanos(0, -1), None);
        assert_eq!(Timestamp::from_seconds_and_nanos(0, NANOS_PER_SECOND), None);
        assert_eq!(Timestamp::from_seconds_and_nanos(WIRE_SECONDS_MAX + 1, 0), None);
        assert_eq!(Timestamp::from_seconds_and_nanos(WIRE_SECONDS_MIN - 1, 0), None);
    }

    #[test]
    fn arithmetic_beyond_the_range_returns_none_or_saturates() {
        let (first, last) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
        let step = Duration::from_micros(1);
        assert_eq!(last.checked_add(step), None);
        assert_eq!(first.checked_sub(step), None);
        assert_eq!(Timestamp::EPOCH.checked_add(Duration::MAX), None);
        assert_eq!(last.saturating_since(first), Duration::from_micros(u64::MAX));
        assert_eq!(first.saturating_since(last), Duration::ZERO);
        let _ = (first.to_string(), last.to_string());
    }

    proptest! {
        #[test]
        fn wire_form_round_trips(
            seconds in WIRE_SECONDS_MIN..=WIRE_SECONDS_MAX,
            micros in 0..1_000_000_i32,
        ) {
            let nanos = micros * NANOS_PER_MICRO;
            let time = Timestamp::from_seconds_and_nanos(seconds, nanos).unwrap();
            prop_assert_eq!(time.to_seconds_and_nanos(), (seconds, nanos));
        }

        #[test]
        fn system_form_round_trips(micros: i64) {
            let time = Timestamp::from_micros(micros);
            prop_assert_eq!(time.to_system_time().and_then(Timestamp::from_system_time), Some(time));
        }

        #[test]
        fn subtracting_an_added_span_returns_the_original(
            micros in -(1_i64 << 60)..(1_i64 << 60),
            span_micros in 0..(1_u64 << 60),
        ) {
            let (time, span) = (Timestamp::from_micros(micros), Duration::from_micros(span_micros));
            let later = time.checked_add(span).unwrap();
            prop_assert_eq!(later.checked_sub(span), Some(time));
            prop_assert_eq!(later.saturating_since(time), span);
            prop_assert!(later >= time);
        }

        #[test]
        fn printed_timestamps_sort_in_time_order(a in 0..WIRE_SECONDS_MAX, b in 0..WIRE_SECONDS_MAX) {
            let (a, b) = (Timestamp::from_secs(a), Timestamp::from_secs(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
