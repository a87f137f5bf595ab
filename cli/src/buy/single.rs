//! One customer buys, and every step is told with its time.

use std::time::{Duration, Instant};

use super::order::{Order, Step, fulfil};
use crate::{front_door::FrontDoor, output};

/// Buys as `email` and prints each step.
pub(super) async fn buy(door: &FrontDoor, email: &str, order: &Order) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mail_url = order.mail_url.clone().unwrap_or_default();
    fulfil(door, email, order, |step| say(begun.elapsed(), &step, &mail_url)).await?;
    Ok(())
}

fn say(elapsed: Duration, step: &Step, mail_url: &str) {
    let mut lines = describe(step, mail_url).into_iter();
    if let Some(first) = lines.next() {
        let (seconds, millis) = (elapsed.as_secs(), elapsed.subsec_millis());
        output::say(format_args!("{seconds:>4}.{millis:03} s  {first}"));
    }
    for line in lines {
        output::say(format_args!("            {line}"));
    }
}

fn describe(step: &Step, mail_url: &str) -> Vec<String> {
    match step {
        Step::SignedIn(person) => vec![format!("signed in as {}", person.email)],
        Step::Joined { seq, position: 0 } => vec![format!("number {seq} in line, and already admitted")],
        Step::Joined { seq, position } => {
            vec![format!("joined the queue: number {seq}, position {position}")]
        }
        Step::Moved { position } => vec![format!("position {position}")],
        Step::Turn { fencing_number } => vec![format!("my turn (number {fencing_number})")],
        Step::Claimed(claim) => {
            let total = claim.total.clone().unwrap_or_default();
            let mut lines =
                vec![format!("claimed, to pay {}", money(total.amount_minor, &total.currency_code))];
            for item in &claim.items {
                lines.push(format!("{}: {}", item.sector_name, units(&item.units)));
            }
            lines
        }
        Step::PaymentOpen(payment) => vec![format!("paying at {}", payment.checkout_url)],
        Step::Paid(_) => vec!["paid".to_owned()],
        Step::Ticketed(tickets) => {
            let mut lines = match tickets.len() {
                1 => vec!["1 ticket is mine".to_owned()],
                count => vec![format!("{count} tickets are mine")],
            };
            lines.extend(tickets.iter().map(|ticket| {
                let unit = ticket.unit.iter().cloned().collect::<Vec<_>>();
                format!("{} {}  {}", ticket.sector_name, units(&unit), ticket.code)
            }));
            lines
        }
        Step::Mailed(mail) => {
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

/// Two decimals: right for what the demo sells, and only for the eye.
fn money(amount_minor: i64, currency_code: &str) -> String {
    format!("{}.{:02} {currency_code}", amount_minor.div_euclid(100), amount_minor.rem_euclid(100))
}
