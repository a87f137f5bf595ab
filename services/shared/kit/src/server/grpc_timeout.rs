//! Parser of the `grpc-timeout` header: the time that the caller is willing to wait.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// A `grpc-timeout` header that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads the header. `None`: the caller set no timeout.
pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Option<Duration>, Malformed> {
    match headers.get(GRPC_TIMEOUT) {
        Some(value) => parse(value.as_bytes()).map(Some).ok_or(Malformed),
        None => Ok(None),
    }
}

/// Parses at most 8 digits and one unit, as in the gRPC specification: `50m` means 50 milliseconds.
pub(crate) fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits.iter().fold(0_u64, |amount, digit| amount * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(amount * 3600)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_unit_is_read() {
        assert_eq!(parse(b"2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse(b"3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse(b"42S"), Some(Duration::from_secs(42)));
        assert_eq!(parse(b"50m"), Some(Duration::from_millis(50)));
        assert_eq!(parse(b"00000007u"), Some(Duration::from_micros(7)));
        assert_eq!(parse(b"0n"), Some(Duration::ZERO));
    }

    #[test]
    fn malformed_timeout_is_refused() {
        for value in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", " 1S", "1S ", "123456789S", "1SS"] {
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn timeout_of_any_amount_and_unit_is_read(amount in 0_u64..=99_999_999, unit in 0_usize..6) {
            let nanos_per_unit = [3_600_000_000_000_u128, 60_000_000_000, 1_000_000_000, 1_000_000, 1_000, 1];
            let text = format!("{amount}{}", ["H", "M", "S", "m", "u", "n"][unit]);
            let parsed = parse(text.as_bytes()).map(|span| span.as_nanos());
            prop_assert_eq!(parsed, Some(u128::from(amount) * nanos_per_unit[unit]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if parse(&bytes).is_some() {
                prop_assert!(bytes.len() >= 2 && bytes.len() <= 9);
            }
        }
    }
}
