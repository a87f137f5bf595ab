//! A queue and its life: the updates of Inventory, the organizer's controls, and the state that follows from both.
//!
//! Updates come from several topics and in any order. Each is stored as a fact, and the state moves only as far as the facts
//! known so far allow.

use onsale_types::{EventId, OrganizerId, SectorId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    line::Line,
    policy::{Policy, PolicyChange, PolicyOverrides},
    refusal::Refusal,
};

/// Life of a queue.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum QueueState {
    /// The queue has not opened yet.
    Scheduled,
    /// Customers join and are admitted.
    Open,
    /// Nobody is admitted; entries keep their places.
    Paused,
    /// Nobody joins and nobody is admitted.
    Closed,
}

/// Cause of a closed queue.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CloseReason {
    /// No unit is free or held. The queue opens again when units become free.
    SoldOut,
    /// The sale ended. Final.
    Ended,
    /// The event was canceled. Final.
    Canceled,
    /// The organizer closed the queue for another reason.
    Organizer,
}

impl CloseReason {
    /// Returns true if the queue can never open again.
    pub(crate) const fn is_final(self) -> bool {
        match self {
            Self::Ended | Self::Canceled => true,
            Self::SoldOut | Self::Organizer => false,
        }
    }
}

/// A copy of the event's public description, which Queue's messages carry along.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EventSummary {
    pub(crate) name: String,
    pub(crate) venue_name: String,
    /// Street address of the venue; may be empty.
    pub(crate) venue_address: String,
    /// IANA name of the venue's time zone.
    pub(crate) time_zone: String,
    pub(crate) start_time: Option<Timestamp>,
}

/// A sector of the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sector {
    pub(crate) sector_id: SectorId,
    pub(crate) name: String,
}

/// A sector that still had free units when the queue closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemainingSector {
    pub(crate) sector_id: SectorId,
    pub(crate) name: String,
    /// Units free when the queue closed.
    pub(crate) free_count: u32,
}

/// Cause and time of a close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    pub(crate) reason: CloseReason,
    pub(crate) time: Timestamp,
    pub(crate) remaining: Vec<RemainingSector>,
}

/// An event as Inventory described it at its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventDetails {
    /// Revision of the event; an older one changes nothing.
    pub(crate) revision: u64,
    pub(crate) organizer_id: OrganizerId,
    pub(crate) summary: EventSummary,
    pub(crate) sectors: Vec<Sector>,
}

/// The queue of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) event_id: EventId,
    /// `None` until Inventory has reported the creation of the event; until then the queue is not found.
    pub(crate) organizer_id: Option<OrganizerId>,
    /// Revision of the newest creation seen.
    pub(crate) created_revision: u64,
    pub(crate) summary: EventSummary,
    pub(crate) sectors: Vec<Sector>,
    /// Revision of the newest activation or end seen.
    pub(crate) life_revision: u64,
    /// True once the event is public.
    pub(crate) is_active: bool,
    /// Revision of the newest update of the stock seen.
    pub(crate) stock_revision: u64,
    /// True if that update said that no unit is left.
    pub(crate) is_sold_out: bool,
    pub(crate) state: QueueState,
    /// Planned or past opening time; `None` until it is known.
    pub(crate) open_time: Option<Timestamp>,
    /// Begin of the organizer's pause. It outlives a sell-out.
    pub(crate) pause_time: Option<Timestamp>,
    /// Refuses joins while the queue is paused.
    pub(crate) joins_paused: bool,
    /// `None` unless the queue is CLOSED.
    pub(crate) close: Option<Close>,
    /// Text shown to waiting customers; may be empty.
    pub(crate) notice: String,
    /// Policy values that the organizer set.
    pub(crate) overrides: PolicyOverrides,
    /// `overrides` over the service's defaults.
    pub(crate) policy: Policy,
    /// Time of the last change of state or policy.
    pub(crate) update_time: Timestamp,
}

/// A queue, its line, and the database time at which they were read.
#[derive(Clone, Debug)]
pub(crate) struct QueueAndLine {
    /// The queue as of `now`.
    pub(crate) queue: Queue,
    pub(crate) line: Line,
    pub(crate) now: Timestamp,
}

impl Queue {
    /// Refuses an organizer who does not own the event. A draft of another organizer is not found.
    pub(crate) fn check_owner(&self, organizer_id: OrganizerId) -> Result<(), Refusal> {
        match self.organizer_id {
            Some(owner) if owner == organizer_id => Ok(()),
            Some(_) if self.is_active => Err(Refusal::EventNotOwned { event_id: self.event_id }),
            Some(_) | None => Err(self.not_found()),
        }
    }

    /// Returns the queue as of `now`: it is open once its opening time has passed, even if that is not stored yet.
    pub(crate) fn settled_at(mut self, now: Timestamp) -> Self {
        self.apply_due_transitions(now);
        self
    }

    /// Applies the creation of the event or a change of its draft; returns true if it is newer than the known one.
    pub(crate) fn created(&mut self, created: EventDetails, now: Timestamp) -> bool {
        if created.revision <= self.created_revision {
            return false;
        }
        self.created_revision = created.revision;
        self.organizer_id = Some(created.organizer_id);
        self.summary = created.summary;
        self.sectors = created.sectors;
        // The activation may have arrived before the creation.
        self.apply_due_transitions(now);
        true
    }

    /// Applies the activation of the event, by which the queue opens at `on_sale_time` or now; returns true if it is newer than
    /// the known one.
    pub(crate) fn activated(
        &mut self,
        revision: u64,
        on_sale_time: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        if revision <= self.life_revision {
            return false;
        }
        self.life_revision = revision;
        let was_active = std::mem::replace(&mut self.is_active, true);
        // A sale that resumes keeps its opening time, which the organizer may have changed.
        if !was_active || self.open_time.is_none() {
            self.open_time = Some(on_sale_time.unwrap_or(now));
        }
        self.apply_due_transitions(now);
        true
    }

    /// Closes the queue for good at the end of the sale; returns true if the update is newer than the known one.
    pub(crate) fn ended(&mut self, revision: u64, now: Timestamp) -> bool {
        if revision <= self.life_revision {
            return false;
        }
        self.life_revision = revision;
        self.set_closed(CloseReason::Ended, Vec::new(), now);
        true
    }

    /// Closes the queue because no unit is free or held; returns true if the update is newer than the known one.
    pub(crate) fn sold_out(&mut self, revision: u64, now: Timestamp) -> bool {
        if revision <= self.stock_revision {
            return false;
        }
        self.stock_revision = revision;
        self.is_sold_out = true;
        self.apply_due_transitions(now);
        true
    }

    /// Ends a sell-out because units became free; returns true if the update is newer than the known one.
    pub(crate) fn available(&mut self, revision: u64, now: Timestamp) -> bool {
        if revision <= self.stock_revision {
            return false;
        }
        self.stock_revision = revision;
        self.is_sold_out = false;
        if self.close_reason() == Some(CloseReason::SoldOut) {
            self.close = None;
            self.state = QueueState::Scheduled;
            self.update_time = now;
        }
        self.apply_due_transitions(now);
        true
    }

    /// Opens the queue for its organizer, now or at `open_time`.
    pub(crate) fn open(&mut self, open_time: Option<Timestamp>, now: Timestamp) -> Result<(), Refusal> {
        let may = match self.state {
            QueueState::Scheduled => true,
            QueueState::Closed => !self.close_reason().is_some_and(CloseReason::is_final),
            QueueState::Open | QueueState::Paused => false,
        };
        if !may || !self.is_active {
            return Err(Refusal::TransitionInvalid { state: self.state });
        }
        self.state = QueueState::Scheduled;
        self.close = None;
        self.pause_time = None;
        self.joins_paused = false;
        self.notice.clear();
        // The organizer overrides a sell-out. Admission checks the free units anyway.
        self.is_sold_out = false;
        self.open_time = Some(open_time.map_or(now, |time| time.max(now)));
        self.update_time = now;
        self.apply_due_transitions(now);
        Ok(())
    }

    /// Stops admission; `joins_paused` also refuses joins.
    pub(crate) fn pause(
        &mut self,
        joins_paused: bool,
        notice: String,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        match self.state {
            QueueState::Open | QueueState::Paused => {}
            state @ (QueueState::Scheduled | QueueState::Closed) => {
                return Err(Refusal::TransitionInvalid { state });
            }
        }
        self.state = QueueState::Paused;
        self.pause_time = self.pause_time.or(Some(now));
        self.joins_paused = joins_paused;
        self.notice = notice;
        self.update_time = now;
        Ok(())
    }

    /// Resumes admission; does nothing if the queue is open.
    pub(crate) fn resume(&mut self, now: Timestamp) -> Result<(), Refusal> {
        match self.state {
            QueueState::Open => return Ok(()),
            QueueState::Paused => {}
            state @ (QueueState::Scheduled | QueueState::Closed) => {
                return Err(Refusal::TransitionInvalid { state });
            }
        }
        self.state = QueueState::Open;
        self.pause_time = None;
        self.joins_paused = false;
        self.notice.clear();
        self.update_time = now;
        Ok(())
    }

    /// Closes the queue for its organizer. A closed queue may be closed again for the same reason only.
    pub(crate) fn close(
        &mut self,
        reason: CloseReason,
        remaining: Vec<RemainingSector>,
        notice: String,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if self.close_reason().is_some_and(|closed| closed != reason) {
            return Err(Refusal::TransitionInvalid { state: self.state });
        }
        self.set_closed(reason, remaining, now);
        self.notice = notice;
        Ok(())
    }

    /// Changes the policy values that the organizer set. The mode is fixed once `has_entries`.
    pub(crate) fn change_policy(
        &mut self,
        change: &PolicyChange,
        has_entries: bool,
        defaults: &Policy,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.overrides = self.overrides.changed(change, has_entries)?;
        self.policy = self.overrides.over(defaults);
        self.update_time = now;
        Ok(())
    }

    /// Returns the reason of the close; `None` unless the queue is CLOSED.
    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.close.as_ref().map(|close| close.reason)
    }

    /// Moves the state as far as the facts allow: opens a queue that is due, and closes one that is sold out.
    fn apply_due_transitions(&mut self, now: Timestamp) {
        let is_due = self.state == QueueState::Scheduled
            && self.is_active
            && self.organizer_id.is_some()
            && self.open_time.is_some_and(|open_time| open_time <= now);
        if is_due {
            // An organizer's pause outlives a sell-out.
            let is_paused = self.pause_time.is_some();
            self.state = if is_paused { QueueState::Paused } else { QueueState::Open };
            self.update_time = now;
        }
        if self.is_sold_out && matches!(self.state, QueueState::Open | QueueState::Paused) {
            self.set_closed(CloseReason::SoldOut, Vec::new(), now);
        }
    }

    fn set_closed(&mut self, reason: CloseReason, remaining: Vec<RemainingSector>, now: Timestamp) {
        let time = self.close.as_ref().filter(|close| close.reason == reason).map_or(now, |close| close.time);
        self.state = QueueState::Closed;
        self.close = Some(Close { reason, time, remaining });
        self.update_time = now;
    }

    fn not_found(&self) -> Refusal {
        Refusal::EventNotFound { event_id: self.event_id }
    }
}

#[cfg(test)]
pub(crate) mod tests;
