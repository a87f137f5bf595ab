//! Purchase of one customer, with each step and its time on standard output.

use std::time::{Duration, Instant};

use super::order::{Order, PurchaseStep, place_order};
use crate::{front_door::FrontDoor, output};

/// Buys as `email` and prints each step.
pub(super) async fn buy(door: &FrontDoor, email: &str, order: &Order) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mail_url = order.mail_url.clone().unwrap_or_default();
    place_order(door, email, order, |step| say(begun.elapsed(), &step, &mail_url)).await?;
    Ok(())
}

fn say(elapsed: Duration, step: &PurchaseStep, mail_url: &str) {
    let mut lines = describe(step, mail_url).into_iter();
    if let Some(first) = lines.next() {
        let (seconds, millis) = (elapsed.as_secs(), elapsed.subsec_millis());
        output::say(format_args!("{seconds:>4}.{millis:03} s  {first}"));
    }
    for line in lines {
        output::say(format_args!("            {line}"));
    }
}

fn describe(step: &PurchaseStep, mail_url: &str) -> Vec<String> {
    match step {
        PurchaseStep::SignedIn(person) => vec![format!("signed in as {}", person.email)],
        PurchaseStep::Joined { seq, position: 0 } => {
            vec![format!("number {seq} in line, and already admitted")]
        }
        PurchaseStep::Joined { seq, position } => {
            vec![format!("joined the queue: number {seq}, position {position}")]
        }
        PurchaseStep::Moved { position } => vec![format!("position {position}")],
        PurchaseStep::Turn { fencing_number } => vec![format!("admitted, turn number {fencing_number}")],
        PurchaseStep::Claimed(claim) => {
            let total = claim.total.clone().unwrap_or_default();
            let mut lines = vec![format!("claimed for {}", money(total.amount_minor, &total.currency_code))];
            for item in &claim.items {
                lines.push(format!("{}: {}", item.sector_name, units(&item.units)));
            }
            lines
        }
        PurchaseStep::PaymentOpen(payment) => vec![format!("paying at {}", payment.checkout_url)],
        PurchaseStep::Paid(_) => vec!["paid".to_owned()],
        PurchaseStep::Ticketed(tickets) => {
            let mut lines = match tickets.len() {
                1 => vec!["1 ticket issued".to_owned()],
                count => vec![format!("{count} tickets issued")],
            };
            lines.extend(tickets.iter().map(|ticket| {
                let unit = ticket.unit.iter().cloned().collect::<Vec<_>>();
                format!("{} {}  {}", ticket.sector_name, units(&unit), ticket.code)
            }));
            lines
        }
        PurchaseStep::Mailed(mail) => {
            vec![format!("mail: {}", mail.subject), format!("{mail_url}/mails/{}", mail.id)]
        }
    }
}

fn units(units: &[onsale_proto::r#type::v1::Unit]) -> String {
    let names = units.iter().map(|unit| match &unit.seat {
        Some(seat) => format!("row {} seat {}", seat.row_label, seat.seat_label),
        None => format!("no. {}", unit.number),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Formats an amount with two decimals, which is right for the demo event's currency and only for display.
fn money(amount_minor: i64, currency_code: &str) -> String {
    format!("{}.{:02} {currency_code}", amount_minor.div_euclid(100), amount_minor.rem_euclid(100))
}
