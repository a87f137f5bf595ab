//! A queue and its life: what Inventory reports, what its organizer wants, and what follows from both.
//!
//! Reports come from several topics and in any order, so each is kept as a fact, and the state is moved only as far as the
//! facts known by then allow.

use onsale_types::{EventId, OrganizerId, SectorId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    policy::{Policy, PolicyOverrides},
    refusal::Refusal,
};

onsale_types::named! {
    /// Life of a queue.
    QueueState {
        /// Not open yet.
        Scheduled = "SCHEDULED",
        /// Customers join and are admitted.
        Open = "OPEN",
        /// Nobody is admitted; places are kept.
        Paused = "PAUSED",
        /// Nobody joins and nobody is admitted.
        Closed = "CLOSED",
    }
}

onsale_types::named! {
    /// Why a queue closed.
    CloseReason {
        /// Nothing is left. Opens again when units come back.
        SoldOut = "SOLD_OUT",
        /// The sale is over. Final.
        Ended = "ENDED",
        /// The event does not take place. Final.
        Canceled = "CANCELED",
        /// The organizer closed it for another reason.
        Organizer = "ORGANIZER",
    }
}

impl CloseReason {
    /// Whether the queue can never open again.
    pub(crate) const fn is_final(self) -> bool {
        match self {
            Self::Ended | Self::Canceled => true,
            Self::SoldOut | Self::Organizer => false,
        }
    }
}

/// What a message says about the event: a copy, so that nobody has to ask back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EventSummary {
    /// Name of the event.
    pub(crate) name: String,
    /// Name of the venue.
    pub(crate) venue_name: String,
    /// Street address of the venue; empty: not given.
    pub(crate) venue_address: String,
    /// IANA name of the venue's time zone.
    pub(crate) time_zone: String,
    /// When the event starts.
    pub(crate) start_time: Option<Timestamp>,
}

/// A sector of the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sector {
    /// Its id.
    pub(crate) sector_id: SectorId,
    /// Its name.
    pub(crate) name: String,
}

/// A sector that still had units when the queue closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemainingSector {
    /// Its id.
    pub(crate) sector_id: SectorId,
    /// Its name.
    pub(crate) name: String,
    /// Units free then.
    pub(crate) free_count: u32,
}

/// How and when a queue closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    /// Why.
    pub(crate) reason: CloseReason,
    /// When.
    pub(crate) time: Timestamp,
    /// Sectors that still had units.
    pub(crate) remaining: Vec<RemainingSector>,
}

/// What Inventory said when it created the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventDetails {
    /// Of the event.
    pub(crate) revision: u64,
    /// Whose it is.
    pub(crate) organizer_id: OrganizerId,
    /// Name, venue, time.
    pub(crate) summary: EventSummary,
    /// Its sectors.
    pub(crate) sectors: Vec<Sector>,
}

/// The queue of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// The event.
    pub(crate) event_id: EventId,
    /// Who steers it; none until the event is known.
    pub(crate) organizer_id: Option<OrganizerId>,
    /// Revision of the newest creation seen.
    pub(crate) created_revision: u64,
    /// Name, venue, time.
    pub(crate) summary: EventSummary,
    /// The event's sectors.
    pub(crate) sectors: Vec<Sector>,
    /// Revision of the newest activation or end seen.
    pub(crate) life_revision: u64,
    /// Whether the event is public.
    pub(crate) is_active: bool,
    /// Revision of the newest report about what is free.
    pub(crate) stock_revision: u64,
    /// Whether that report said that nothing is.
    pub(crate) is_sold_out: bool,
    /// Where it is in its life.
    pub(crate) state: QueueState,
    /// When it opens or opened.
    pub(crate) open_time: Option<Timestamp>,
    /// Since when the organizer keeps it paused.
    pub(crate) pause_time: Option<Timestamp>,
    /// Whether joining is refused while it is paused.
    pub(crate) joins_paused: bool,
    /// How it closed, while it is closed.
    pub(crate) close: Option<Close>,
    /// Words for the waiting customers; empty: none.
    pub(crate) notice: String,
    /// What the organizer has set.
    pub(crate) overrides: PolicyOverrides,
    /// How it admits: what is set over the service's defaults.
    pub(crate) policy: Policy,
    /// When state or policy last changed.
    pub(crate) update_time: Timestamp,
}

impl Queue {
    /// The queue, if anybody may know of it: the event was reported.
    pub(crate) fn known(self) -> Result<Self, Refusal> {
        if self.organizer_id.is_some() { Ok(self) } else { Err(self.not_found()) }
    }

    /// Whether `organizer_id` may steer it. Another's draft does not exist for them.
    pub(crate) fn check_owner(&self, organizer_id: OrganizerId) -> Result<(), Refusal> {
        match self.organizer_id {
            Some(owner) if owner == organizer_id => Ok(()),
            Some(_) if self.is_active => Err(Refusal::EventNotOwned { event_id: self.event_id }),
            Some(_) | None => Err(self.not_found()),
        }
    }

    /// As it is at `now`: an opening time that has come counts, whether or not somebody has written it down yet.
    pub(crate) fn at(mut self, now: Timestamp) -> Self {
        self.settle(now);
        self
    }

    /// Whether somebody new may join at `now`.
    pub(crate) fn check_join(&self, now: Timestamp, waiting_count: u64) -> Result<(), Refusal> {
        match self.state {
            QueueState::Scheduled => {
                // A draft's time is not public.
                let open_time = self.open_time.filter(|_| self.is_active);
                return Err(Refusal::QueueNotOpen { open_time, now });
            }
            QueueState::Paused if self.joins_paused => return Err(Refusal::QueuePaused),
            QueueState::Closed => return Err(self.closed_refusal()),
            QueueState::Open | QueueState::Paused => {}
        }
        if waiting_count >= self.policy.waiting_max {
            return Err(Refusal::QueueFull { waiting_max: self.policy.waiting_max });
        }
        Ok(())
    }

    /// Inventory created the event, or changed its draft. Answers whether that is news.
    pub(crate) fn created(&mut self, created: EventDetails, now: Timestamp) -> bool {
        if created.revision <= self.created_revision {
            return false;
        }
        self.created_revision = created.revision;
        self.organizer_id = Some(created.organizer_id);
        self.summary = created.summary;
        self.sectors = created.sectors;
        // The activation may have come before.
        self.settle(now);
        true
    }

    /// Inventory made the event public: it opens at `on_sale_time`, or now. Answers whether that is news.
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
        // A halted sale that goes on keeps the time it has; the organizer may have moved it.
        if !was_active || self.open_time.is_none() {
            self.open_time = Some(on_sale_time.unwrap_or(now));
        }
        self.settle(now);
        true
    }

    /// Inventory ended the sale for good. Answers whether that is news.
    pub(crate) fn ended(&mut self, revision: u64, now: Timestamp) -> bool {
        if revision <= self.life_revision {
            return false;
        }
        self.life_revision = revision;
        self.shut(CloseReason::Ended, Vec::new(), now);
        true
    }

    /// Inventory has nothing free and nothing held. Answers whether that is news.
    pub(crate) fn sold_out(&mut self, revision: u64, now: Timestamp) -> bool {
        if revision <= self.stock_revision {
            return false;
        }
        self.stock_revision = revision;
        self.is_sold_out = true;
        self.settle(now);
        true
    }

    /// Units came back. Answers whether that is news.
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
        self.settle(now);
        true
    }

    /// The organizer opens it now or at `open_time`.
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
        // The organizer knows better; whether there is something to sell is asked before anybody is admitted.
        self.is_sold_out = false;
        self.open_time = Some(open_time.map_or(now, |time| time.max(now)));
        self.update_time = now;
        self.settle(now);
        Ok(())
    }

    /// The organizer stops admission.
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

    /// The organizer lets admission go on.
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

    /// The organizer closes it.
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
        self.shut(reason, remaining, now);
        self.notice = notice;
        Ok(())
    }

    /// Why it is closed, if it is.
    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.close.as_ref().map(|close| close.reason)
    }

    /// Moves the state as far as the facts allow: opens what is due, closes what has nothing to sell.
    fn settle(&mut self, now: Timestamp) {
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
            self.shut(CloseReason::SoldOut, Vec::new(), now);
        }
    }

    fn shut(&mut self, reason: CloseReason, remaining: Vec<RemainingSector>, now: Timestamp) {
        let time = self.close.as_ref().filter(|close| close.reason == reason).map_or(now, |close| close.time);
        self.state = QueueState::Closed;
        self.close = Some(Close { reason, time, remaining });
        self.update_time = now;
    }

    fn closed_refusal(&self) -> Refusal {
        match &self.close {
            Some(close) if close.reason == CloseReason::SoldOut => Refusal::SoldOut {
                remaining: close.remaining.iter().map(|sector| sector.sector_id).collect(),
            },
            close => Refusal::QueueClosed {
                reason: close.as_ref().map_or(CloseReason::Organizer, |close| close.reason),
            },
        }
    }

    fn not_found(&self) -> Refusal {
        Refusal::EventNotFound { event_id: self.event_id }
    }
}

#[cfg(test)]
pub(crate) mod tests;
