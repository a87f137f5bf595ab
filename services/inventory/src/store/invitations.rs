//! Invitations in Postgres.

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{CustomerId, HoldId, InvitationId, QuotaId};
use uuid::Uuid;

use super::{database_number, database_time, number, optional_time};
use crate::{
    domain::invitation::{Accepted, Invitation, InvitationState, Invitee},
    error::Error,
};

macro_rules! columns {
    () => {
        "invitation_id, quota_id, email, unit_count, state, customer_id, accept_time, hold_id"
    };
}

// Who was invited before keeps their invitation.
const INSERT: &str = "INSERT INTO invitation (invitation_id, quota_id, email, unit_count, state)
    SELECT invitation_id, $1, email, unit_count, 'PENDING'
    FROM unnest($2::uuid[], $3::text[], $4::integer[]) AS new (invitation_id, email, unit_count)
    ON CONFLICT DO NOTHING";
const FIND_BY_EMAIL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM unnest($2::text[]) WITH ORDINALITY AS wanted (address, place)
     CROSS JOIN LATERAL (SELECT * FROM invitation
         WHERE quota_id = $1 AND lower(email) = lower(wanted.address) LIMIT 1) AS found
     ORDER BY place"
);
const LOCK: &str = concat!("SELECT ", columns!(), " FROM invitation WHERE invitation_id = $1 FOR UPDATE");
const SAVE: &str = "UPDATE invitation SET state = $2, customer_id = $3, accept_time = $4, hold_id = $5
    WHERE invitation_id = $1";
const EXPIRE: &str = "UPDATE invitation SET state = 'EXPIRED'
    WHERE quota_id = $1 AND hold_id IS NULL AND state IN ('PENDING', 'ACCEPTED')";

/// Invites `invitees` to a locked quota. Answers everybody's invitation in their order; it has the id given beside the
/// invitee where it is new, and another where the address was invited before.
pub async fn insert(
    transaction: &Transaction,
    quota_id: QuotaId,
    invitees: &[(InvitationId, &Invitee)],
) -> Result<Vec<Invitation>, Error> {
    let ids: Vec<Uuid> = invitees.iter().map(|(id, _)| id.as_uuid()).collect();
    let emails: Vec<&str> = invitees.iter().map(|(_, invitee)| invitee.email.as_str()).collect();
    let counts: Vec<i32> = invitees.iter().map(|(_, invitee)| database_number(invitee.unit_count)).collect();
    transaction.execute(INSERT, &[&quota_id.as_uuid(), &ids, &emails, &counts]).await?;
    let rows = transaction.query(FIND_BY_EMAIL, &[&quota_id.as_uuid(), &emails]).await?;
    rows.iter().map(read).collect()
}

/// The invitation, locked until the transaction ends. Who needs its quota's lock too takes that one first.
pub async fn lock(
    transaction: &Transaction,
    invitation_id: InvitationId,
) -> Result<Option<Invitation>, Error> {
    transaction.query_opt(LOCK, &[&invitation_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Writes what may change of a locked invitation.
pub async fn save(transaction: &Transaction, invitation: &Invitation) -> Result<(), Error> {
    let customer_id = invitation.accepted.map(|accepted| accepted.customer_id.as_uuid());
    let accept_time = invitation.accepted.map(|accepted| database_time(accepted.time));
    let hold_id = invitation.hold_id.map(|hold_id| hold_id.as_uuid());
    let (id, state) = (invitation.id.as_uuid(), invitation.state.name());
    transaction.execute(SAVE, &[&id, &state, &customer_id, &accept_time, &hold_id]).await?;
    Ok(())
}

/// Ends all invitations to a locked quota that hold nothing.
pub async fn expire(transaction: &Transaction, quota_id: QuotaId) -> Result<(), Error> {
    transaction.execute(EXPIRE, &[&quota_id.as_uuid()]).await?;
    Ok(())
}

fn read(row: &Row) -> Result<Invitation, Error> {
    let customer_id = column::<Option<Uuid>>(row, "customer_id")?.map(CustomerId::from_uuid);
    let accepted = customer_id.zip(optional_time(row, "accept_time")?);
    let state = InvitationState::from_name(column(row, "state")?);
    Ok(Invitation {
        id: InvitationId::from_uuid(column(row, "invitation_id")?),
        quota_id: QuotaId::from_uuid(column(row, "quota_id")?),
        email: column(row, "email")?,
        unit_count: number(row, "unit_count")?,
        state: state.ok_or(Error::Stored { what: "state", source: None })?,
        accepted: accepted.map(|(customer_id, time)| Accepted { customer_id, time }),
        hold_id: column::<Option<Uuid>>(row, "hold_id")?.map(HoldId::from_uuid),
    })
}
