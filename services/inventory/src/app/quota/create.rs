//! `CreateQuota`: takes units out of the public sale, all or none. The primary key of `hold_unit` makes them the quota's,
//! whatever Redis offers meanwhile.

use std::sync::{Mutex, PoisonError};

use onsale_kit::deadline::Deadline;
use onsale_proto::inventory::v1 as pb;
use onsale_storage::{
    idempotency::{self, Request},
    postgres::{self, Transaction},
};
use onsale_types::{OrganizerId, QuotaId, Timestamp};

use super::{
    super::{App, check_own, lock_own},
    NewQuota, QuotaUnits, event_now,
};
use crate::{
    convert,
    domain::{
        counts::{Counts, CountsChange},
        event::{Event, EventState, IllegalMove, Sector},
        hold::{UnitChoice, check_selections},
        pick::pick,
        quota::{Quota, choose},
    },
    error::Error,
    metrics, store,
};

/// How often units are chosen for one call; each time others were faster.
const ATTEMPTS_MAX: u32 = 16;
/// From here on units are chosen that others ask for last.
const CALM_ATTEMPTS_MAX: u32 = 3;

/// Why no quota was written.
enum TryError {
    /// Some of the chosen units are another's by now.
    Contended,
    Failed(Error),
}

impl From<Error> for TryError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<postgres::Error> for TryError {
    fn from(error: postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<idempotency::Error> for TryError {
    fn from(error: idempotency::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl App {
    /// Keeps units for a group, in an event of `organizer_id`.
    pub async fn create_quota(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        new: &NewQuota,
    ) -> Result<pb::CreateQuotaResponse, Error> {
        for attempt in 0..ATTEMPTS_MAX {
            if Deadline::current().is_some_and(|deadline| deadline.is_past()) {
                break;
            }
            let is_contended = attempt >= CALM_ATTEMPTS_MAX;
            match self.try_create_quota(request, organizer_id, new, is_contended).await {
                Ok((response, moved)) => {
                    self.stores.outbox.wake_relay();
                    if let Some(moved) = moved {
                        self.settle_kept(moved).await;
                    }
                    return Ok(response);
                }
                Err(TryError::Failed(error)) => return Err(error),
                Err(TryError::Contended) => metrics::conflicted(),
            }
        }
        Err(Error::Contended)
    }

    async fn try_create_quota(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        new: &NewQuota,
        is_contended: bool,
    ) -> Result<(pb::CreateQuotaResponse, Option<QuotaUnits>), TryError> {
        let moved = &Mutex::new(None);
        let response = self
            .stores
            .postgres
            .transaction("create quota", |transaction| async move {
                *moved.lock().unwrap_or_else(PoisonError::into_inner) = None;
                idempotency::once(&transaction, request, async {
                    let (event, now) = own_event(&transaction, organizer_id, new).await?;
                    let (quota, kept) =
                        self.insert_quota(&transaction, (&event, now), new, is_contended).await?;
                    if event.state != EventState::Draft {
                        *moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
                    }
                    Ok::<_, TryError>(pb::CreateQuotaResponse { quota: Some(convert::quota(&quota)) })
                })
                .await
            })
            .await?;
        let moved = moved.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((response, moved))
    }

    /// The quota and its units, in `transaction`.
    async fn insert_quota(
        &self,
        transaction: &Transaction,
        (event, now): (&Event, Timestamp),
        new: &NewQuota,
        is_contended: bool,
    ) -> Result<(Quota, QuotaUnits), TryError> {
        if event.state == EventState::Ended {
            return Err(Error::from(IllegalMove { state: event.state }).into());
        }
        convert::return_time(new.return_time, now, event.details.start_time).map_err(Error::from)?;
        let offer = self.offer_of(transaction, event).await?;
        let selection = std::slice::from_ref(&new.selection);
        let sectors =
            check_selections(&offer.sectors, u32::MAX, selection).map_err(convert::unit_selection)?;
        let sector = sectors.first().ok_or(Error::SectorNotFound { sector_id: new.selection.sector_id })?;
        let quota_id = QuotaId::generate();
        let units = keep(transaction, quota_id, sector, &new.selection.choice, is_contended).await?;
        let place = (event.id, sector.id);
        let quota =
            store::quotas::insert(transaction, quota_id, place, &new.name, &units, new.return_time).await?;
        store::quotas::begin_count(transaction, event.id, sector).await?;
        let count = i32::try_from(units.len()).unwrap_or(i32::MAX);
        let counts =
            store::stocks::change(transaction, &[(sector.id, CountsChange::kept(count))].into()).await?;
        if counts.values().any(Counts::is_full) {
            self.sell_out(transaction, event.id).await?;
        }
        let revision = counts.get(&sector.id).map_or(0, |counts| counts.revision);
        Ok((quota, QuotaUnits { event_id: event.id, sector_id: sector.id, revision, units }))
    }
}

/// The event and the database's time. A draft is locked, because it may change under us; a public event is not, because
/// whoever sells it out locks its stock first.
async fn own_event(
    transaction: &Transaction,
    organizer_id: OrganizerId,
    new: &NewQuota,
) -> Result<(Event, Timestamp), Error> {
    let event_id = new.event_id;
    let (event, now) = event_now(transaction, event_id).await?;
    check_own(&event, organizer_id)?;
    if event.state == EventState::Draft {
        return Ok((lock_own(transaction, event_id, organizer_id).await?, now));
    }
    Ok((event, now))
}

/// Makes units of `sector` the quota's, as many as wanted or exactly those.
async fn keep(
    transaction: &Transaction,
    quota_id: QuotaId,
    sector: &Sector,
    wanted: &UnitChoice,
    is_contended: bool,
) -> Result<Vec<u32>, TryError> {
    let layout = sector.layout.as_ref();
    let units = match wanted {
        UnitChoice::Units(units) => units.clone(),
        UnitChoice::Count(count) if *count > sector.capacity => {
            let message = format!("is more than {}, the capacity of the sector", sector.capacity);
            return Err(Error::from(convert::invalid("selection.count", message)).into());
        }
        UnitChoice::Count(count) => {
            let free = store::stocks::free_units(transaction, sector).await?;
            let free_count = free.count();
            let chosen = choose(layout, &free, *count, is_contended);
            chosen.ok_or(Error::NotEnoughUnits { sector_id: sector.id, free_count })?
        }
    };
    let taken = store::quotas::keep_units(transaction, quota_id, sector, &units).await?;
    match wanted {
        _ if taken.is_empty() => Ok(units),
        UnitChoice::Count(_) => Err(TryError::Contended),
        UnitChoice::Units(_) => {
            let free = store::stocks::free_units(transaction, sector).await?;
            let alternatives = pick(layout, &free, wanted.count()).unwrap_or_default();
            Err(Error::UnitsTaken { sector_id: sector.id, taken, alternatives }.into())
        }
    }
}
