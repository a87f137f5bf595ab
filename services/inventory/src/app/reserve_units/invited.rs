//! `ReserveUnits` with an invitation: app → engine::invitation_tokens → store → domain::invitation → store. The units come from
//! the invitation's quota, which is locked meanwhile. Idempotent by the hold's id.

use std::{collections::HashMap, sync::Arc};

use onsale_storage::postgres::Transaction;
use onsale_types::SectorId;

use crate::{
    app::App,
    domain::{
        commands::ReserveUnits,
        counts::{self, Changes, Counts, CountsChange},
        event::{Event, Offer, Sector},
        hold::{Hold, HoldItem, HoldState, Invited, UnitChoice, check_selections},
        pick::pick,
        quota::Quota,
        results::Reservation,
    },
    engine::{InvitationClaims, StockChange, event_now},
    error::{self, Error},
    store,
};

/// A hold of an invitee.
struct InvitedHold {
    event: Event,
    offer: Arc<Offer>,
    hold: Hold,
    /// The counts after a new hold; empty for an existing one.
    counts: HashMap<SectorId, Counts>,
}

impl InvitedHold {
    fn existing(event: Event, offer: Arc<Offer>, hold: Hold) -> Self {
        Self { event, offer, hold, counts: HashMap::new() }
    }
}

impl App {
    /// Holds units of the invitation's quota, all or none.
    pub(super) async fn reserve_invited(
        &self,
        command: &ReserveUnits,
        token: &str,
    ) -> Result<Reservation, Error> {
        let claims = self.engine.invitation_tokens.read(token)?;
        if claims.event_id != command.event_id {
            return Err(Error::InvitationTokenInvalid);
        }
        let claims = &claims;
        let invited = self
            .stores
            .postgres
            .transaction("reserve invited units", |transaction| async move {
                let quota = store::quotas::lock(&transaction, claims.quota_id).await?;
                let quota = quota.ok_or(Error::InvitationTokenInvalid)?;
                self.hold_invited(&transaction, command, claims, quota).await
            })
            .await?;
        let InvitedHold { event, offer, hold, counts } = invited;
        for (sector_id, counts) in counts {
            // Kept units were not free before, so the view changes its revision only.
            self.engine.views.apply(sector_id, counts.revision, StockChange::default());
        }
        Ok(Reservation { event: Arc::new(event), offer, hold })
    }

    /// Makes the hold with units of the locked `quota`, or returns the existing one.
    async fn hold_invited(
        &self,
        transaction: &Transaction,
        command: &ReserveUnits,
        claims: &InvitationClaims,
        mut quota: Quota,
    ) -> Result<InvitedHold, Error> {
        let ReserveUnits { hold_id, event_id, customer_id, .. } = *command;
        let InvitationClaims { invitation_id, quota_id, .. } = *claims;
        let invited = Invited { quota_id, invitation_id };
        let (event, now) = event_now(transaction, event_id).await?;
        let offer = self.engine.offer_of(transaction, &event).await?;
        if let Some(hold) = store::holds::find(transaction, &[hold_id]).await?.remove(&hold_id) {
            return Ok(InvitedHold::existing(event, offer, check_repeat(command, invited, hold)?));
        }
        let found = store::invitations::lock(transaction, invitation_id).await?;
        let mut invitation = found.ok_or(Error::InvitationTokenInvalid)?;
        invitation
            .check_use(customer_id, &quota, now)
            .map_err(|fault| Error::Invitation { invitation_id, fault })?;
        if !event.is_selling_to_invitees() {
            return Err(Error::NotOnSale { state: event.state, on_sale_time: None });
        }
        let sectors = check_selections(&offer, offer.units_per_customer_max, &command.selections)
            .map_err(error::selection)?;
        let selection = invitation.check_selections(quota.sector_id, &command.selections)?;
        let sector = sectors.first().ok_or(Error::SectorNotFound { sector_id: quota.sector_id })?;
        let units = choose(transaction, &quota, sector, &selection.choice).await?;
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
            // A concurrent request made it with another invitation or without one, or it is a tombstone.
            let found = store::holds::find(transaction, &[hold_id]).await?.remove(&hold_id);
            let hold = found.ok_or(Error::HoldNotFound { hold_id })?;
            return Ok(InvitedHold::existing(event, offer, check_repeat(command, invited, hold)?));
        }
        store::quotas::give_units(transaction, &quota, hold_id, &units).await?;
        quota.hold(selection.choice.count());
        invitation.hold(hold_id);
        store::invitations::save(transaction, &invitation).await?;
        store::quotas::save(transaction, &quota).await?;
        let mut changes = Changes::new();
        counts::add(&mut changes, [&hold], CountsChange::INVITED);
        let counts = store::stocks::change(transaction, &changes).await?;
        Ok(InvitedHold { event, offer, hold, counts })
    }
}

/// Returns units that the locked quota keeps: the best ones, or exactly those chosen.
async fn choose(
    transaction: &Transaction,
    quota: &Quota,
    sector: &Sector,
    choice: &UnitChoice,
) -> Result<Vec<u32>, Error> {
    let kept = store::quotas::kept_units(transaction, quota, sector).await?;
    let best = pick(sector.layout.as_ref(), &kept, choice.count());
    match choice {
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

/// Returns the existing hold if it is a tombstone or the result of the same request.
fn check_repeat(command: &ReserveUnits, invited: Invited, hold: Hold) -> Result<Hold, Error> {
    let ReserveUnits { event_id, customer_id, hold_id, .. } = *command;
    if hold.is_tombstone() {
        return Ok(hold.released_for(event_id, customer_id));
    }
    let is_same = hold.invited == Some(invited) && hold.answers(event_id, customer_id, &command.selections);
    if is_same { Ok(hold) } else { Err(Error::HoldIdReused { hold_id }) }
}
