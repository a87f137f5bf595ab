//! Purchases of many customers at once, with their progress and a summary.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::bail;
use tokio::{task::JoinSet, time::interval};

use super::order::{Order, OrderError, PurchaseStep, place_order};
use crate::{front_door::FrontDoor, output};

/// Customers who share one connection. More customers use further connections, as separate apps would.
const CUSTOMERS_PER_CONNECTION: u32 = 64;

/// Number of customers who have completed each step, and of tickets issued to them.
#[derive(Debug, Default)]
struct Progress {
    joined: AtomicU32,
    admitted: AtomicU32,
    claimed: AtomicU32,
    paid: AtomicU32,
    done: AtomicU32,
    tickets: AtomicU32,
    sold_out: AtomicU32,
    failed: AtomicU32,
}

impl Progress {
    fn note(&self, step: &PurchaseStep) {
        let count = |counter: &AtomicU32, number: usize| {
            counter.fetch_add(u32::try_from(number).unwrap_or(u32::MAX), Ordering::Relaxed);
        };
        match step {
            PurchaseStep::Joined { .. } => count(&self.joined, 1),
            PurchaseStep::Turn { .. } => count(&self.admitted, 1),
            PurchaseStep::Claimed(_) => count(&self.claimed, 1),
            PurchaseStep::Paid(_) => count(&self.paid, 1),
            PurchaseStep::Ticketed(tickets) => count(&self.tickets, tickets.len()),
            PurchaseStep::SignedIn(_)
            | PurchaseStep::Moved { .. }
            | PurchaseStep::PaymentOpen(_)
            | PurchaseStep::Mailed(_) => {}
        }
    }

    fn line(&self, customers: u32) -> String {
        let of = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        format!(
            "joined {}/{customers}  admitted {}  claimed {}  paid {}  done {}  sold out {}  failed {}",
            of(&self.joined),
            of(&self.admitted),
            of(&self.claimed),
            of(&self.paid),
            of(&self.done),
            of(&self.sold_out),
            of(&self.failed),
        )
    }
}

/// Outcome of one customer's purchase.
enum PurchaseOutcome {
    Bought { after: Duration },
    SoldOut,
    Failed { why: String },
}

/// Lets `customers` buy at once, the first of them as `first_email`. Fails if a purchase failed for another reason than a
/// sell-out.
pub(super) async fn buy(
    door: &FrontDoor,
    first_email: String,
    order: &Order,
    customers: u32,
) -> anyhow::Result<()> {
    let progress = Arc::new(Progress::default());
    let begun = Instant::now();
    let mut running = JoinSet::new();
    let mut own_door = door.clone();
    for number in 0..customers {
        if number % CUSTOMERS_PER_CONNECTION == 0 {
            own_door = FrontDoor::at(door.url())?;
        }
        let email = if number == 0 { first_email.clone() } else { super::new_address() };
        running.spawn(one(own_door.clone(), email, order.clone(), Arc::clone(&progress)));
    }
    let outcomes = follow(running, &progress, customers).await?;
    summarize(&outcomes, &progress, begun.elapsed())
}

async fn one(door: FrontDoor, email: String, order: Order, progress: Arc<Progress>) -> PurchaseOutcome {
    let begun = Instant::now();
    let done = place_order(&door, &email, &order, |step| progress.note(&step)).await;
    let (counter, outcome) = match done {
        Ok(()) => (&progress.done, PurchaseOutcome::Bought { after: begun.elapsed() }),
        Err(error) if error.is_sold_out() => (&progress.sold_out, PurchaseOutcome::SoldOut),
        Err(error) => (&progress.failed, PurchaseOutcome::Failed { why: explain(&error) }),
    };
    counter.fetch_add(1, Ordering::Relaxed);
    outcome
}

fn explain(error: &OrderError) -> String {
    onsale_kit::error::Chain(error).to_string()
}

/// Collects the outcomes and shows the progress: every 200 ms in place on a terminal, else every 2 s on a line of its own.
async fn follow(
    mut running: JoinSet<PurchaseOutcome>,
    progress: &Progress,
    customers: u32,
) -> anyhow::Result<Vec<PurchaseOutcome>> {
    let live = std::io::stderr().is_terminal();
    let mut ticks = interval(if live { Duration::from_millis(200) } else { Duration::from_secs(2) });
    let mut outcomes = Vec::new();
    loop {
        tokio::select! {
            next = running.join_next() => match next {
                Some(outcome) => outcomes.push(outcome?),
                None => break,
            },
            _ = ticks.tick() => show(&progress.line(customers), live, false)?,
        }
    }
    show(&progress.line(customers), live, true)?;
    Ok(outcomes)
}

fn show(line: &str, live: bool, last: bool) -> std::io::Result<()> {
    let mut error_output = std::io::stderr().lock();
    match (live, last) {
        (true, false) => write!(error_output, "\r\x1b[2K{line}")?,
        (true, true) => writeln!(error_output, "\r\x1b[2K{line}")?,
        (false, _) => writeln!(error_output, "{line}")?,
    }
    error_output.flush()
}

fn summarize(outcomes: &[PurchaseOutcome], progress: &Progress, elapsed: Duration) -> anyhow::Result<()> {
    let mut times = Vec::new();
    let mut sold_out = 0_usize;
    let mut failures: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        match outcome {
            PurchaseOutcome::Bought { after } => times.push(*after),
            PurchaseOutcome::SoldOut => sold_out = sold_out.saturating_add(1),
            PurchaseOutcome::Failed { why } => {
                let count = failures.entry(why).or_default();
                *count = count.saturating_add(1);
            }
        }
    }
    times.sort_unstable();
    let at = |percent: usize| {
        let index = times.len().saturating_mul(percent).div_ceil(100).saturating_sub(1);
        times.get(index).copied().unwrap_or_default()
    };
    output::say(format_args!("{} customers in {}", outcomes.len(), seconds(elapsed)));
    let tickets = progress.tickets.load(Ordering::Relaxed);
    output::say(format_args!("  bought     {} ({tickets} tickets)", times.len()));
    output::say(format_args!("  sold out   {sold_out}"));
    output::say(format_args!("  failed     {}", failures.values().sum::<usize>()));
    for (why, count) in &failures {
        output::say(format_args!("    {count} × {why}"));
    }
    if !times.is_empty() {
        let (half, most) = (seconds(at(50)), seconds(at(95)));
        output::say(format_args!("  from sign-in to mail: half within {half}, 95 % within {most}"));
    }
    if failures.is_empty() { Ok(()) } else { bail!("some purchases failed") }
}

fn seconds(span: Duration) -> String {
    format!("{}.{:02} s", span.as_secs(), span.subsec_millis() / 10)
}
