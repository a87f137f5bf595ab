//! `CreateQuota`: grpc → app → store → domain::quota → store → engine. Takes units out of the public sale, all or none. The
//! primary key of `hold_unit` makes them the quota's, even if Redis offers them at the same time.

use onsale_kit::deadline::Deadline;
use onsale_storage::{
    idempotency::{self, Answer, Request},
    postgres::{self, Transaction},
};
use onsale_types::{OrganizerId, QuotaId, Timestamp};
use parking_lot::Mutex;

use super::{App, check_owner, lock_own_event};
use crate::{
    domain::{
        commands::CreateQuota,
        counts::{Counts, CountsChange},
        event::{Event, EventState, IllegalMove, Sector},
        hold::{UnitChoice, check_selections},
        pick::pick,
        quota::{Quota, QuotaFault, check_return_time, choose},
    },
    engine::{QuotaUnits, event_now},
    error::{self, Error},
    metrics, store,
};

/// Attempts of one call. Each failed attempt lost one of its units to another call.
const ATTEMPTS_MAX: u32 = 16;
/// Attempts with the units that the public would get. Later attempts choose the last units.
const CALM_ATTEMPTS_MAX: u32 = 3;

/// The failure of one attempt.
enum AttemptError {
    /// Another call took some of the chosen units.
    Contended,
    Failed(Error),
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<postgres::Error> for AttemptError {
    fn from(error: postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<idempotency::Error> for AttemptError {
    fn from(error: idempotency::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl App {
    pub(crate) async fn create_quota(
        &self,
        request: &Request<'_, Quota>,
        organizer_id: OrganizerId,
        command: &CreateQuota,
    ) -> Result<Answer<Quota>, Error> {
        for attempt in 0..ATTEMPTS_MAX {
            if Deadline::current().is_some_and(|deadline| deadline.is_past()) {
                break;
            }
            let is_contended = attempt >= CALM_ATTEMPTS_MAX;
            match self.try_create_quota(request, organizer_id, command, is_contended).await {
                Ok((answer, kept)) => {
                    self.stores.outbox.wake_relay();
                    if let Some(kept) = kept {
                        self.engine.apply_kept(kept).await;
                    }
                    return Ok(answer);
                }
                Err(AttemptError::Failed(error)) => return Err(error),
                Err(AttemptError::Contended) => metrics::conflicted(),
            }
        }
        Err(Error::Contended)
    }

    /// Returns the answer and the units to remove from the pool; `None` for a draft, which has no pool, and for a repeated
    /// request.
    async fn try_create_quota(
        &self,
        request: &Request<'_, Quota>,
        organizer_id: OrganizerId,
        command: &CreateQuota,
        is_contended: bool,
    ) -> Result<(Answer<Quota>, Option<QuotaUnits>), AttemptError> {
        let kept = &Mutex::new(None);
        let answer = self
            .stores
            .postgres
            .transaction("create quota", |transaction| async move {
                *kept.lock() = None;
                let work = async {
                    let (event, now) = own_event(&transaction, organizer_id, command).await?;
                    let (quota, units) =
                        self.insert_quota(&transaction, (&event, now), command, is_contended).await?;
                    if event.state != EventState::Draft {
                        *kept.lock() = Some(units);
                    }
                    Ok::<_, AttemptError>(quota)
                };
                request.once(&transaction, work).await
            })
            .await?;
        Ok((answer, kept.lock().take()))
    }

    /// Inserts the quota, its units and the changed counts.
    async fn insert_quota(
        &self,
        transaction: &Transaction,
        (event, now): (&Event, Timestamp),
        command: &CreateQuota,
        is_contended: bool,
    ) -> Result<(Quota, QuotaUnits), AttemptError> {
        if event.state == EventState::Ended {
            return Err(Error::from(IllegalMove { state: event.state }).into());
        }
        let CreateQuota { name, selection, return_time, .. } = command;
        check_return_time(*return_time, now, event.details.start_time).map_err(Error::from)?;
        let offer = self.engine.offer_of(transaction, event).await?;
        let sectors = check_selections(&offer, u32::MAX, std::slice::from_ref(selection))
            .map_err(error::quota_selection)?;
        let sector = sectors.first().ok_or(Error::SectorNotFound { sector_id: selection.sector_id })?;
        let quota_id = QuotaId::generate();
        let units = keep(transaction, quota_id, sector, &selection.choice, is_contended).await?;
        let ids = (event.id, sector.id);
        let quota = store::quotas::insert(transaction, quota_id, ids, name, &units, *return_time).await?;
        store::quotas::begin_count(transaction, event.id, sector).await?;
        let count = i32::try_from(units.len()).unwrap_or(i32::MAX);
        let changes = [(sector.id, CountsChange::kept(count))].into();
        let counts = store::stocks::change(transaction, &changes).await?;
        if counts.values().any(Counts::is_full) {
            self.engine.sell_out(transaction, event.id).await?;
        }
        let revision = counts.get(&sector.id).map_or(0, |counts| counts.revision);
        Ok((quota, QuotaUnits { event_id: event.id, sector_id: sector.id, revision, units }))
    }
}

/// Returns the event and the database's time. A draft is locked, because it may change concurrently. A public event is not: a
/// transaction that sells it out locks its counts first.
async fn own_event(
    transaction: &Transaction,
    organizer_id: OrganizerId,
    command: &CreateQuota,
) -> Result<(Event, Timestamp), Error> {
    let event_id = command.event_id;
    let (event, now) = event_now(transaction, event_id).await?;
    check_owner(&event, organizer_id)?;
    if event.state == EventState::Draft {
        return Ok((lock_own_event(transaction, event_id, organizer_id).await?, now));
    }
    Ok((event, now))
}

/// Inserts units of `sector` as the quota's, and returns them.
async fn keep(
    transaction: &Transaction,
    quota_id: QuotaId,
    sector: &Sector,
    choice: &UnitChoice,
    is_contended: bool,
) -> Result<Vec<u32>, AttemptError> {
    let layout = sector.layout.as_ref();
    let units = match choice {
        UnitChoice::Units(units) => units.clone(),
        UnitChoice::Count(count) if *count > sector.capacity => {
            return Err(Error::from(QuotaFault::TooMany { capacity: sector.capacity }).into());
        }
        UnitChoice::Count(count) => {
            let free = store::stocks::free_units(transaction, sector).await?;
            let free_count = free.count();
            let chosen = choose(layout, &free, *count, is_contended);
            chosen.ok_or(Error::NotEnoughUnits { sector_id: sector.id, free_count })?
        }
    };
    let taken = store::quotas::keep_units(transaction, quota_id, sector, &units).await?;
    match choice {
        _ if taken.is_empty() => Ok(units),
        UnitChoice::Count(_) => Err(AttemptError::Contended),
        UnitChoice::Units(_) => {
            let free = store::stocks::free_units(transaction, sector).await?;
            let alternatives = pick(layout, &free, choice.count()).unwrap_or_default();
            Err(Error::UnitsTaken { sector_id: sector.id, taken, alternatives }.into())
        }
    }
}
