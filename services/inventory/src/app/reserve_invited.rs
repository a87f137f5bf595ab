//! `ReserveUnits` with an invitation: the units come from its quota, which is locked meanwhile. Idempotent by the hold's id.

use std::{collections::HashMap, sync::Arc};

use onsale_proto::inventory::v1 as pb;
use onsale_storage::postgres::Transaction;
use onsale_types::SectorId;

use super::{
    App, ReserveUnits,
    catalog::Offer,
    quota::{event_now, tokens::InvitationClaims},
    views::StockChange,
};
use crate::{
    convert,
    domain::{
        counts::{self, Changes, Counts, CountsChange},
        event::{Event, EventState, Sector},
        hold::{Hold, HoldItem, HoldState, Invited, UnitChoice, check_selections},
        invitation::Invitation,
        pick::pick,
        quota::Quota,
    },
    error::Error,
    store,
};

/// A hold of an invitee.
struct Made {
    event: Event,
    offer: Arc<Offer>,
    hold: Hold,
    /// What it made of the counts; nothing when it was there before.
    counts: HashMap<SectorId, Counts>,
}

impl Made {
    fn before(event: Event, offer: Arc<Offer>, hold: Hold) -> Self {
        Self { event, offer, hold, counts: HashMap::new() }
    }
}

impl App {
    /// Sets units of the invitation's quota aside, all or none.
    pub(super) async fn reserve_invited(
        &self,
        command: &ReserveUnits,
        token: &str,
    ) -> Result<pb::ReserveUnitsResponse, Error> {
        let named = self.invitation_tokens.read(token)?;
        if named.event_id != command.event_id {
            return Err(Error::InvitationTokenInvalid);
        }
        let named = &named;
        let made = self
            .stores
            .postgres
            .transaction("reserve invited units", |transaction| async move {
                let quota = store::quotas::lock(&transaction, named.quota_id).await?;
                let quota = quota.ok_or(Error::InvitationTokenInvalid)?;
                self.hold_invited(&transaction, command, named, quota).await
            })
            .await?;
        for (sector_id, counts) in made.counts {
            // What is free is as it was.
            self.views.follow(sector_id, counts.revision, StockChange::default());
        }
        convert::reserved(&made.event, &made.offer.sectors, &made.hold, command.known_event_revision)
    }

    /// The hold, with units of the locked `quota`.
    async fn hold_invited(
        &self,
        transaction: &Transaction,
        command: &ReserveUnits,
        named: &InvitationClaims,
        mut quota: Quota,
    ) -> Result<Made, Error> {
        let ReserveUnits { hold_id, event_id, customer_id, .. } = *command;
        let InvitationClaims { invitation_id, quota_id, .. } = *named;
        let invited = Invited { quota_id, invitation_id };
        let (event, now) = event_now(transaction, event_id).await?;
        let offer = self.offer_of(transaction, &event).await?;
        if let Some(hold) = store::holds::find(transaction, &[hold_id]).await?.remove(&hold_id) {
            return Ok(Made::before(event, offer, same(command, invited, hold)?));
        }
        let found = store::invitations::lock(transaction, invitation_id).await?;
        let mut invitation = found.ok_or(Error::InvitationTokenInvalid)?;
        invitation
            .check_use(customer_id, &quota, now)
            .map_err(|fault| Error::Invitation { invitation_id, fault })?;
        check_state(&event)?;
        let sectors = check_selections(&offer.sectors, offer.units_per_customer_max, &command.selections)
            .map_err(convert::selection_fault)?;
        let (sector, wanted) = one_selection(command, &sectors, &quota, &invitation)?;
        let units = choose(transaction, &quota, sector, wanted).await?;
        let hold = Hold {
            id: hold_id,
            event_id,
            customer_id,
            state: HoldState::Held,
            items: vec![HoldItem { sector_id: sector.id, units: units.clone() }],
            invited: Some(invited),
            create_time: now,
            expire_time: store::holds::expire_time(now, command.release_after),
        };
        if !store::holds::insert(transaction, &[&hold]).await?.contains(&hold_id) {
            // Made a moment ago with another invitation, or without one; or released before it was made.
            let found = store::holds::find(transaction, &[hold_id]).await?.remove(&hold_id);
            let hold = found.ok_or(Error::HoldNotFound { hold_id })?;
            return Ok(Made::before(event, offer, same(command, invited, hold)?));
        }
        store::quotas::give(transaction, &quota, hold_id, &units).await?;
        quota.hold(wanted.count());
        invitation.hold(hold_id);
        store::invitations::save(transaction, &invitation).await?;
        store::quotas::save(transaction, &quota).await?;
        let mut changes = Changes::new();
        counts::add(&mut changes, [&hold], CountsChange::INVITED);
        let counts = store::stocks::change(transaction, &changes).await?;
        Ok(Made { event, offer, hold, counts })
    }
}

/// Who is invited need not wait for the sale to begin, and does not mind that the public finds nothing.
fn check_state(event: &Event) -> Result<(), Error> {
    match event.state {
        EventState::OnSale | EventState::SoldOut => Ok(()),
        EventState::Draft | EventState::Paused | EventState::Ended => {
            Err(Error::NotOnSale { state: event.state, on_sale_time: None })
        }
    }
}

/// The one selection that an invitation allows: of its quota's sector, and not too many.
fn one_selection<'a>(
    command: &'a ReserveUnits,
    sectors: &[&'a Sector],
    quota: &Quota,
    invitation: &Invitation,
) -> Result<(&'a Sector, &'a UnitChoice), Error> {
    let selected: Vec<_> = command.selections.iter().zip(sectors).collect();
    if let Some(index) = selected.iter().position(|(selection, _)| selection.sector_id != quota.sector_id) {
        return Err(convert::invited_selection(index).into());
    }
    let Some((selection, sector)) = selected.first() else {
        return Err(convert::invalid("selections", "must be one").into());
    };
    if selection.choice.count() > invitation.unit_count {
        let message = format!("more than {} units, which the invitation allows", invitation.unit_count);
        return Err(convert::invalid("selections", message).into());
    }
    Ok((sector, &selection.choice))
}

/// Units that the locked quota keeps: the best there are, or exactly those wanted.
async fn choose(
    transaction: &Transaction,
    quota: &Quota,
    sector: &Sector,
    wanted: &UnitChoice,
) -> Result<Vec<u32>, Error> {
    let kept = store::quotas::kept_units(transaction, quota, sector).await?;
    let best = pick(sector.layout.as_ref(), &kept, wanted.count());
    match wanted {
        UnitChoice::Count(_) => {
            best.ok_or(Error::NotEnoughUnits { sector_id: sector.id, free_count: kept.count() })
        }
        UnitChoice::Units(units) => {
            let taken: Vec<u32> = units.iter().copied().filter(|unit| !kept.contains(*unit)).collect();
            if taken.is_empty() {
                return Ok(units.clone());
            }
            Err(Error::UnitsTaken { sector_id: sector.id, taken, alternatives: best.unwrap_or_default() })
        }
    }
}

/// The hold, if it is what `command` asks for, or was released before it was made.
fn same(command: &ReserveUnits, invited: Invited, hold: Hold) -> Result<Hold, Error> {
    let ReserveUnits { event_id, customer_id, hold_id, .. } = *command;
    if hold.is_tombstone() {
        return Ok(hold.released_for(event_id, customer_id));
    }
    let is_same = hold.invited == Some(invited) && hold.answers(event_id, customer_id, &command.selections);
    if is_same { Ok(hold) } else { Err(Error::HoldIdReused { hold_id }) }
}
