//! Collects everything that is wrong with a request, so that a caller hears of it in one answer and not one by one.

use std::{fmt::Display, str::FromStr, time::Duration};

use onsale_proto::{
    convert,
    r#type::v1::{self as pb, ErrorReason},
};
use onsale_types::{Money, ParseIdError, Timestamp};
use tonic::Status;

use super::{Kind, Reason, ServiceError, to_status};

/// What is beyond this is not listed: the answer has to fit in headers, of which clients take 16 KiB in all.
const BYTES_MAX: usize = 4 * 1024;

/// A longer text is cut off: it may quote what the caller sent.
const TEXT_BYTES_MAX: usize = 256;

/// So many are named in the message too; the details have them all.
const SUMMARY_MAX: usize = 3;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field in the request, e.g. `seat_ids[2]`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub description: String,
}

/// The violations found so far while a request is converted.
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
    /// How long their texts are together.
    bytes: usize,
}

impl Violations {
    /// None found yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value, or nothing and a violation of `field` with the error's text. With `format_args!` the name of a field costs
    /// nothing until it is needed.
    pub fn check<T, E: Display>(&mut self, field: impl Display, parsed: Result<T, E>) -> Option<T> {
        parsed.map_err(|error| self.push(field, error.to_string())).ok()
    }

    /// The value of a message field that must be set.
    pub fn require<T>(&mut self, field: impl Display, value: Option<T>) -> Option<T> {
        self.check(field, value.ok_or("is required"))
    }

    /// The time of a message field that must be set.
    pub fn require_time(
        &mut self,
        field: impl Display,
        time: Option<prost_types::Timestamp>,
    ) -> Option<Timestamp> {
        let time = self.require(&field, time)?;
        self.check(field, convert::time_from_pb(time))
    }

    /// The time of a message field that may be unset; the outer `None` means that it is set to something unreadable.
    pub fn optional_time(
        &mut self,
        field: impl Display,
        time: Option<prost_types::Timestamp>,
    ) -> Option<Option<Timestamp>> {
        time.map_or(Some(None), |time| self.check(field, convert::time_from_pb(time)).map(Some))
    }

    /// The span of a message field that must be set.
    pub fn require_duration(
        &mut self,
        field: impl Display,
        span: Option<prost_types::Duration>,
    ) -> Option<Duration> {
        let span = self.require(&field, span)?;
        self.check(field, convert::duration_from_pb(span))
    }

    /// The amount, of at least 0, of a message field that must be set.
    pub fn require_money(&mut self, field: impl Display, money: Option<pb::Money>) -> Option<Money> {
        let money = self.require(&field, money)?;
        self.check(field, convert::money_from_pb(&money))
    }

    /// An id that may be unset, which is the empty text; the outer `None` means that it is malformed.
    pub fn optional_id<T: FromStr<Err = ParseIdError>>(
        &mut self,
        field: impl Display,
        text: &str,
    ) -> Option<Option<T>> {
        if text.is_empty() { Some(None) } else { self.check(field, text.parse()).map(Some) }
    }

    /// Notes a violation.
    pub fn push(&mut self, field: impl Display, description: impl Into<String>) {
        let violation =
            Violation { field: truncated(field.to_string()), description: truncated(description.into()) };
        // A little for each besides its texts.
        self.bytes += violation.field.len() + violation.description.len() + 8;
        if self.bytes <= BYTES_MAX {
            self.found.push(violation);
        }
    }

    /// An error when anything was found.
    pub fn finish(self) -> Result<(), InvalidFields> {
        self.build(|| Some(()))
    }

    /// The converted request, or an error with everything that was found. `make` answers none only when one of its
    /// parts was refused above, so it can use `?` on them.
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

/// One or more fields of the request are malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of the request's fields invalid: {}", violations.len(), summary(violations))]
pub struct InvalidFields {
    /// Each of them, in the order in which they were checked.
    pub violations: Vec<Violation>,
}

impl InvalidFields {
    /// The request's bytes are not the message they should be, so no field can be named.
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

/// The text, shortened where it is too long.
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
    fn an_answer_fits_in_headers_whatever_the_caller_sent() {
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
