//! Collects everything that is wrong with a request, so that a caller hears of it in one answer and not one by one.

use std::fmt::Display;

use onsale_proto::r#type::v1::ErrorReason;
use tonic::Status;

use super::{Kind, Reason, ServiceError, to_status};

/// More than this many are not listed: the answer has to fit in a header.
const VIOLATIONS_MAX: usize = 50;

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
}

impl Violations {
    /// None found yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value, or nothing and a violation of `field` with the error's text.
    pub fn check<T, E: Display>(&mut self, field: impl Into<String>, parsed: Result<T, E>) -> Option<T> {
        parsed.map_err(|error| self.push(field, error.to_string())).ok()
    }

    /// The value of a message field that must be set.
    pub fn require<T>(&mut self, field: impl Into<String>, value: Option<T>) -> Option<T> {
        self.check(field, value.ok_or("is required"))
    }

    /// Notes a violation.
    pub fn push(&mut self, field: impl Into<String>, description: impl Into<String>) {
        if self.found.len() < VIOLATIONS_MAX {
            self.found.push(Violation { field: field.into(), description: description.into() });
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

fn summary(violations: &[Violation]) -> String {
    let each: Vec<_> =
        violations.iter().map(|violation| format!("{} {}", violation.field, violation.description)).collect();
    each.join(", ")
}
