//! Job "deliver", first half: workers → app → store::deliveries (due, begin) → domain::delivery.

use std::time::Instant;

use onsale_types::Named as _;
use uuid::Uuid;

use super::{App, send_delivery::report_dead};
use crate::{
    domain::{
        content::Template,
        delivery::{DeliveryState, DueAction, due_action},
    },
    error::Error,
    metrics::{self, Outcome},
    store::{self, deliveries::DueDelivery},
};

/// Delivery that this process has leased in order to send it.
#[derive(Debug)]
pub(crate) struct LeasedDelivery {
    pub(super) due: DueDelivery,
    /// Start of the lease.
    pub(super) leased_at: Instant,
}

impl LeasedDelivery {
    /// Returns the number of this attempt among all attempts of the delivery, from 1.
    pub(super) fn number(&self) -> u32 {
        self.due.attempts.saturating_add(1)
    }

    /// Returns the number of this attempt in its round, from 1.
    pub(super) fn round_number(&self) -> u32 {
        self.due.round_attempts.saturating_add(1)
    }
}

#[derive(Debug)]
pub(crate) struct LeasedDeliveries {
    /// To be sent now.
    pub(crate) deliveries: Vec<LeasedDelivery>,
    /// True if as many were due as were asked for, those that ended unsent included: there may be more.
    pub(crate) is_full: bool,
}

/// Due deliveries by the action to take on each.
#[derive(Debug, Default)]
struct ByAction {
    send: Vec<DueDelivery>,
    skip: Vec<(Uuid, Template)>,
    dead_letter: Vec<(Uuid, Template)>,
}

impl ByAction {
    fn count(&self) -> usize {
        [self.send.len(), self.skip.len(), self.dead_letter.len()].iter().sum()
    }
}

impl App {
    /// Leases up to `max` due deliveries and records the start of an attempt of each. Expired deliveries, and those whose workers
    /// always crashed, end here unsent. Pass every returned delivery to [`App::send_delivery`].
    pub(crate) async fn lease_deliveries(&self, max: usize) -> Result<LeasedDeliveries, Error> {
        let leased_at = Instant::now();
        let by_action = self
            .stores
            .postgres
            .transaction("take deliveries", |transaction| async move {
                let due = store::deliveries::due(&transaction, max).await?;
                let all: Vec<Uuid> = due.iter().map(|due| due.delivery_id).collect();
                if all.is_empty() {
                    return Ok(ByAction::default());
                }
                let by_action = self.sort_by_action(due);
                store::deliveries::end_lost_attempts(&transaction, &all).await?;
                for (ended, state) in
                    [(&by_action.skip, DeliveryState::Skipped), (&by_action.dead_letter, DeliveryState::Dead)]
                {
                    let ids: Vec<Uuid> = ended.iter().map(|(id, _)| *id).collect();
                    store::deliveries::end(&transaction, &ids, state).await?;
                }
                let ids: Vec<Uuid> = by_action.send.iter().map(|due| due.delivery_id).collect();
                store::deliveries::begin(&transaction, &ids, self.lease, self.mailer.name()).await?;
                Ok::<_, Error>(by_action)
            })
            .await?;
        let is_full = by_action.count() == max;
        for (delivery_id, template) in by_action.skip {
            metrics::attempt_ended(template.name(), Outcome::Skipped);
            tracing::info!(%delivery_id, template = template.name(), "delivery expired, not sending it");
        }
        for (delivery_id, template) in by_action.dead_letter {
            report_dead(delivery_id, template, "every worker that tried to send it crashed");
        }
        let deliveries = by_action.send.into_iter().map(|due| LeasedDelivery { due, leased_at }).collect();
        Ok(LeasedDeliveries { deliveries, is_full })
    }

    fn sort_by_action(&self, due: Vec<DueDelivery>) -> ByAction {
        let mut by_action = ByAction::default();
        for due in due {
            match due_action(due.round_attempts, due.is_expired, &self.pauses) {
                DueAction::Send => by_action.send.push(due),
                DueAction::Skip => by_action.skip.push((due.delivery_id, due.template)),
                DueAction::DeadLetter => by_action.dead_letter.push((due.delivery_id, due.template)),
            }
        }
        by_action
    }
}
