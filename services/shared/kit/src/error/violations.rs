//! Collects all malformed fields of a request, so that the caller gets them in one response.

use std::{fmt::Display, str::FromStr, time::Duration};

use onsale_proto::{
    convert,
    r#type::v1::{self as pb, ErrorReason},
};
use onsale_types::{Money, ParseIdError, Timestamp};
use tonic::Status;

use super::{Kind, Reason, ServiceError, to_status};

/// Size limit of the listed violations; further ones are dropped. The status must fit in headers, of which clients accept
/// 16 KiB in total.
const BYTES_MAX: usize = 4 * 1024;

/// Longest text; it is cut off because it may quote the caller's input.
const TEXT_BYTES_MAX: usize = 256;

/// Number of violations in the status message. The details list them all.
const SUMMARY_MAX: usize = 3;

/// A malformed field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field in the request, for example `seat_ids[2]`.
    pub field: String,
    /// The rule that the value breaks, worded to follow the field's name.
    pub description: String,
}

/// Collects violations while a request is converted.
///
/// ```
/// # use onsale_kit::error::{InvalidFields, Violations};
/// # struct Reserve { event: u32, quantity: u8 }
/// # fn convert(event: &str, quantity: &str) -> Result<Reserve, InvalidFields> {
/// let mut violations = Violations::new();
/// let event = violations.check("event_id", event.parse());
/// let quantity = violations.check("quantity", quantity.parse());
/// violations.build(|| Some(Reserve { event: event?, quantity: quantity? }))
/// # }
/// # assert_eq!(convert("", "many").err().map(|invalid| invalid.violations.len()), Some(2));
/// ```
#[derive(Debug, Default)]
pub struct Violations {
    found: Vec<Violation>,
    /// Total length of the texts found so far, plus 8 for each violation.
    bytes: usize,
}

impl Violations {
    /// Creates an empty collection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value, or records the error as a violation of `field`. Pass `format_args!` as `field` to format its name
    /// only if it is needed.
    pub fn check<T, E: Display>(&mut self, field: impl Display, parsed: Result<T, E>) -> Option<T> {
        parsed.map_err(|error| self.push(field, error.to_string())).ok()
    }

    /// Returns the value of a required message field, or records that it is missing.
    pub fn require<T>(&mut self, field: impl Display, value: Option<T>) -> Option<T> {
        self.check(field, value.ok_or("is required"))
    }

    /// Converts the time of a required message field.
    pub fn require_time(
        &mut self,
        field: impl Display,
        time: Option<prost_types::Timestamp>,
    ) -> Option<Timestamp> {
        let time = self.require(&field, time)?;
        self.check(field, convert::time_from_pb(time))
    }

    /// Converts the time of an optional message field. The outer `None` means that the value is invalid.
    pub fn optional_time(
        &mut self,
        field: impl Display,
        time: Option<prost_types::Timestamp>,
    ) -> Option<Option<Timestamp>> {
        time.map_or(Some(None), |time| self.check(field, convert::time_from_pb(time)).map(Some))
    }

    /// Converts the duration of a required message field.
    pub fn require_duration(
        &mut self,
        field: impl Display,
        span: Option<prost_types::Duration>,
    ) -> Option<Duration> {
        let span = self.require(&field, span)?;
        self.check(field, convert::duration_from_pb(span))
    }

    /// Converts the amount (0 or more) of a required message field.
    pub fn require_money(&mut self, field: impl Display, money: Option<pb::Money>) -> Option<Money> {
        let money = self.require(&field, money)?;
        self.check(field, convert::money_from_pb(&money))
    }

    /// Parses an optional id; the empty text means unset. The outer `None` means that the id is malformed.
    pub fn optional_id<T: FromStr<Err = ParseIdError>>(
        &mut self,
        field: impl Display,
        text: &str,
    ) -> Option<Option<T>> {
        if text.is_empty() { Some(None) } else { self.check(field, text.parse()).map(Some) }
    }

    /// Records a violation.
    pub fn push(&mut self, field: impl Display, description: impl Into<String>) {
        let violation =
            Violation { field: truncated(field.to_string()), description: truncated(description.into()) };
        // Each violation also costs about 8 bytes of encoding.
        self.bytes += violation.field.len() + violation.description.len() + 8;
        if self.bytes <= BYTES_MAX {
            self.found.push(violation);
        }
    }

    /// Returns an error if a violation was recorded.
    pub fn finish(self) -> Result<(), InvalidFields> {
        self.build(|| Some(()))
    }

    /// Returns the converted request, or an error with all violations. `make` may use `?` on values that were checked above:
    /// it returns `None` only if one of them was refused.
    pub fn build<T>(mut self, make: impl FnOnce() -> Option<T>) -> Result<T, InvalidFields> {
        if self.found.is_empty() {
            if let Some(made) = make() {
                return Ok(made);
            }
            self.push("", "the request cannot be read");
        }
        Err(InvalidFields { violations: self.found })
    }
}

/// An error for one or more malformed fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of the request's fields invalid: {}", violations.len(), summary(violations))]
pub struct InvalidFields {
    /// The violations in the order in which the fields were checked.
    pub violations: Vec<Violation>,
}

impl InvalidFields {
    /// Creates the error for bytes that are not the expected message, so no field can be named.
    pub(crate) fn unreadable() -> Self {
        let description = "the request is not a readable message".to_owned();
        Self { violations: vec![Violation { field: String::new(), description }] }
    }
}

impl ServiceError for InvalidFields {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }

    fn reason(&self) -> Reason {
        ErrorReason::FieldsInvalid.into()
    }

    fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

impl From<InvalidFields> for Status {
    fn from(error: InvalidFields) -> Self {
        to_status(&error)
    }
}

/// Cuts the text off at `TEXT_BYTES_MAX`, on a character boundary.
fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

fn summary(violations: &[Violation]) -> String {
    let named = violations.iter().take(SUMMARY_MAX);
    let mut each: Vec<_> =
        named.map(|violation| format!("{} {}", violation.field, violation.description)).collect();
    if violations.len() > SUMMARY_MAX {
        each.push("and more".to_owned());
    }
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_with_any_violations_fits_in_headers() {
        for text in ["x".repeat(100_000), "ž ".repeat(50_000), String::new()] {
            let mut violations = Violations::new();
            for index in 0..10_000 {
                violations.push(format!("seat_ids[{index}]"), format!("is not a seat: {text}"));
            }
            let status = Status::from(violations.finish().expect_err("all are bad"));
            let mut headers = http::HeaderMap::new();
            status.add_header(&mut headers).expect("a status is written");
            let bytes: usize =
                headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
            assert!(bytes < 12 * 1024, "{bytes} bytes");
        }
    }
}
