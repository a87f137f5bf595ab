//! Faults of the domain as violations of request fields, under the field names of the contract.

use std::fmt::Display;

use onsale_kit::error::{InvalidFields, Violations};

use super::Error;
use crate::domain::{
    hold::SelectionFault,
    invitation::InvitedSelectionFault,
    quota::{DraftFault, QuotaFault},
};

/// Converts a fault of a reservation's selections.
pub(crate) fn selection(fault: SelectionFault) -> Error {
    let field = match fault {
        SelectionFault::UnknownSector(sector_id) => return Error::SectorNotFound { sector_id },
        SelectionFault::NotSeated { index } | SelectionFault::UnknownUnit { index, .. } => {
            format!("selections[{index}].units")
        }
        SelectionFault::TooMany { .. } => "selections".to_owned(),
    };
    invalid(field, fault)
}

/// Converts a fault of a quota's selection.
pub(crate) fn quota_selection(fault: SelectionFault) -> Error {
    match fault {
        SelectionFault::UnknownSector(sector_id) => Error::SectorNotFound { sector_id },
        SelectionFault::NotSeated { .. } | SelectionFault::UnknownUnit { .. } => {
            invalid("selection.units", fault)
        }
        SelectionFault::TooMany { .. } => invalid("selection", fault),
    }
}

impl From<InvitedSelectionFault> for Error {
    fn from(fault: InvitedSelectionFault) -> Self {
        match fault {
            InvitedSelectionFault::OtherSector { index } => {
                invalid(format!("selections[{index}].sector_id"), fault)
            }
            InvitedSelectionFault::NotOne | InvitedSelectionFault::TooMany { .. } => {
                invalid("selections", fault)
            }
        }
    }
}

impl From<QuotaFault> for Error {
    fn from(fault: QuotaFault) -> Self {
        match fault {
            QuotaFault::ReturnInThePast | QuotaFault::ReturnAfterStart => invalid("return_time", fault),
            QuotaFault::TooMany { .. } => invalid("selection.count", fault),
        }
    }
}

/// Refuses invitees, given by their indexes, who would get more than `units_max` units.
pub(crate) fn refuse_invitees(indexes: &[usize], units_max: u32) -> Result<(), InvalidFields> {
    let mut violations = Violations::new();
    for index in indexes {
        let message = format!("must be at most {units_max}, the event's limit per customer");
        violations.push(format!("invitees[{index}].unit_count"), message);
    }
    violations.finish()
}

/// Refuses a change of a draft that would harm a quota.
pub(crate) fn refuse_draft_faults(faults: &[DraftFault]) -> Result<(), InvalidFields> {
    let mut violations = Violations::new();
    for fault in faults {
        let field = match fault {
            DraftFault::Removed(_) => "event.sectors".to_owned(),
            DraftFault::Reshaped { index } => format!("event.sectors[{index}].capacity"),
            DraftFault::Early => "event.start_time".to_owned(),
        };
        violations.push(field, fault.to_string());
    }
    violations.finish()
}

/// Returns the refusal of a time zone that the database does not know.
pub(crate) fn unknown_time_zone() -> Error {
    invalid("event.venue.time_zone", "is not a known IANA time zone")
}

fn invalid(field: impl Display, message: impl Display) -> Error {
    let mut violations = Violations::new();
    violations.push(field, message.to_string());
    violations.finish().err().unwrap_or(InvalidFields { violations: Vec::new() }).into()
}
