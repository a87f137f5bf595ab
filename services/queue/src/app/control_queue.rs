//! An organizer's live control: open, pause, resume, close, retune.

use std::collections::HashMap;

use onsale_kit::error::Violation;
use onsale_proto::queue::v1::Queue as QueueAnswer;
use onsale_storage::{idempotency, postgres::Transaction};
use onsale_types::{EventId, OrganizerId, SectorId, Timestamp};
use prost::Message;

use super::{App, tell::QueueChange};
use crate::{
    convert,
    domain::{
        policy::PolicyChange,
        queue::{CloseReason, Queue, RemainingSector},
    },
    error::Error,
    store::queues::{self, QueueAndLine},
};

/// An organizer's wish.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    /// Open now, or at a time.
    Open {
        /// When; none or past: now.
        open_time: Option<Timestamp>,
    },
    /// Stop admission.
    Pause {
        /// Whether joining is refused as well.
        joins_paused: bool,
        /// Words for the waiting customers.
        notice: String,
    },
    /// Let admission go on.
    Resume,
    /// Close.
    Close {
        /// Why.
        reason: CloseReason,
        /// Sectors to name as still available.
        remaining: Vec<SectorId>,
        /// Words for the waiting customers.
        notice: String,
    },
    /// Retune.
    Retune(PolicyChange),
}

/// Free units by sector, as far as a control needs to know them.
type Free = HashMap<SectorId, u32>;

impl App {
    /// Does what the organizer wants with the queue of an event of theirs; `answer` makes the answer of it.
    pub(crate) async fn control<R: Message + Default>(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        control: &Control,
        request: &idempotency::Request<'_>,
        answer: fn(QueueAnswer) -> R,
    ) -> Result<R, Error> {
        let free = &self.free_for(organizer_id, event_id, control).await?;
        let work = |transaction: Transaction| async move {
            let mut current = queues::lock(&transaction, event_id, &self.defaults).await?;
            current.queue.check_owner(organizer_id)?;
            self.apply(&mut current, control, free)?;
            current.line.touch();
            queues::save_queue(&transaction, &current.queue).await?;
            queues::save_line(&transaction, event_id, &current.line).await?;
            let state = current.queue.state.name();
            tracing::info!(%event_id, %organizer_id, state, "queue steered by its organizer");
            Ok((answer(convert::responses::queue(&current)), Some(QueueChange::steered(&current))))
        };
        let answered = self.change_once("control queue", request, work).await?;
        // Whatever it was, more may be allowed now.
        self.slot_freed.notify_one();
        Ok(answered)
    }

    /// What is free in the sectors that a close names. Asked before the transaction, which must not wait for others.
    async fn free_for(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        control: &Control,
    ) -> Result<Free, Error> {
        match control {
            Control::Close { remaining, .. } if !remaining.is_empty() => {
                let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
                current.queue.check_owner(organizer_id)?;
                Ok(self.inventory.availability(event_id).await?.sectors)
            }
            Control::Open { .. }
            | Control::Pause { .. }
            | Control::Resume
            | Control::Close { .. }
            | Control::Retune(_) => Ok(Free::new()),
        }
    }

    fn apply(&self, current: &mut QueueAndLine, control: &Control, free: &Free) -> Result<(), Error> {
        let (queue, now) = (&mut current.queue, current.now);
        match control {
            Control::Open { open_time } => queue.open(*open_time, now)?,
            Control::Pause { joins_paused, notice } => queue.pause(*joins_paused, notice.clone(), now)?,
            Control::Resume => queue.resume(now)?,
            Control::Close { reason, remaining, notice } => {
                let remaining = remaining_sectors(queue, remaining, free)?;
                queue.close(*reason, remaining, notice.clone(), now)?;
            }
            Control::Retune(change) => {
                queue.overrides = queue.overrides.changed(change, current.line.last_seq > 0)?;
                queue.policy = queue.overrides.over(&self.defaults);
                queue.update_time = now;
            }
        }
        Ok(())
    }
}

fn remaining_sectors(
    queue: &Queue,
    sector_ids: &[SectorId],
    free: &Free,
) -> Result<Vec<RemainingSector>, Error> {
    let named = sector_ids.iter().enumerate().map(|(index, sector_id)| {
        let sector = queue.sectors.iter().find(|sector| sector.sector_id == *sector_id);
        let sector = sector.ok_or_else(|| {
            Error::Field(Violation {
                field: format!("remaining_sector_ids[{index}]"),
                description: "is not a sector of this event".to_owned(),
            })
        })?;
        let free_count = free.get(sector_id).copied().unwrap_or(0);
        Ok(RemainingSector { sector_id: *sector_id, name: sector.name.clone(), free_count })
    });
    named.collect()
}
