//! What Ticketing counts.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::domain::ticket::CheckInOutcome;

const GENERATED: &str = "ticketing_tickets_generated_total";
const BATCH_FAILURES: &str = "ticketing_generation_failures_total";
const ISSUED: &str = "ticketing_tickets_issued_total";
const ORDERS_PENDING: &str = "ticketing_orders_pending";
const ORDERS_REFUSED: &str = "ticketing_orders_refused_total";
const CHECK_INS: &str = "ticketing_check_ins_total";

/// Says what each is, once per process.
pub fn describe() {
    describe_counter!(GENERATED, Unit::Count, "Tickets made by this process");
    describe_counter!(BATCH_FAILURES, Unit::Count, "Failed tries at a generation job");
    describe_counter!(ISSUED, Unit::Count, "Tickets issued to buyers by this process");
    describe_gauge!(ORDERS_PENDING, Unit::Count, "Paid orders whose tickets do not exist yet");
    describe_counter!(ORDERS_REFUSED, Unit::Count, "Paid orders whose tickets were another's: must be 0");
    describe_counter!(CHECK_INS, Unit::Count, "Check-ins by outcome");
}

/// Tickets were made.
pub(crate) fn generated(count: u32) {
    counter!(GENERATED).increment(count.into());
}

/// A try at a job failed.
pub(crate) fn generation_failed() {
    counter!(BATCH_FAILURES).increment(1);
}

/// Tickets were issued.
pub(crate) fn issued(count: usize) {
    counter!(ISSUED).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

/// So many orders wait for their tickets.
pub(crate) fn orders_pending(count: u32) {
    gauge!(ORDERS_PENDING).set(count);
}

/// An order got no tickets.
pub(crate) fn order_refused() {
    counter!(ORDERS_REFUSED).increment(1);
}

/// A code was shown at a gate.
pub(crate) fn checked_in(outcome: CheckInOutcome) {
    let outcome = match outcome {
        CheckInOutcome::Admitted => "admitted",
        CheckInOutcome::AlreadyCheckedIn => "already_checked_in",
        CheckInOutcome::Void => "void",
        CheckInOutcome::CodeReplaced => "code_replaced",
        CheckInOutcome::WrongEvent => "wrong_event",
        CheckInOutcome::NotIssued => "not_issued",
    };
    counter!(CHECK_INS, "outcome" => outcome).increment(1);
}
