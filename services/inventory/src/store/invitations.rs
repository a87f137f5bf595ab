//! Invitations in Postgres.

use onsale_storage::postgres::{
    Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime, uuids},
};
use onsale_types::{CustomerId, InvitationId, Named as _, QuotaId};

use crate::{
    domain::invitation::{Accepted, Invitation, Invitee},
    error::Error,
};

macro_rules! columns {
    () => {
        "invitation_id, quota_id, email, unit_count, state, customer_id, accept_time, hold_id"
    };
}

// An address that was invited before keeps its invitation.
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

/// Invites `invitees` to a locked quota and returns their invitations in the same order. A new invitation has the id given
/// beside the invitee; an address that was invited before keeps its earlier invitation.
pub(crate) async fn insert(
    transaction: &Transaction,
    quota_id: QuotaId,
    invitees: &[(InvitationId, &Invitee)],
) -> Result<Vec<Invitation>, Error> {
    let ids = uuids(invitees.iter().map(|(id, _)| id));
    let emails: Vec<&str> = invitees.iter().map(|(_, invitee)| invitee.email.as_str()).collect();
    let counts: Vec<_> = invitees.iter().map(|(_, invitee)| SqlCount(invitee.unit_count)).collect();
    transaction.execute(INSERT, &[&quota_id.as_uuid(), &ids, &emails, &counts]).await?;
    let rows = transaction.query(FIND_BY_EMAIL, &[&quota_id.as_uuid(), &emails]).await?;
    rows.iter().map(read).collect()
}

/// Returns the invitation, locked until the transaction ends. A transaction that also locks its quota locks the quota first.
pub(crate) async fn lock(
    transaction: &Transaction,
    invitation_id: InvitationId,
) -> Result<Option<Invitation>, Error> {
    transaction.query_opt(LOCK, &[&invitation_id.as_uuid()]).await?.as_ref().map(read).transpose()
}

/// Writes the changeable columns of a locked invitation.
pub(crate) async fn save(transaction: &Transaction, invitation: &Invitation) -> Result<(), Error> {
    let customer_id = invitation.accepted.map(|accepted| accepted.customer_id.as_uuid());
    let accept_time = invitation.accepted.map(|accepted| SqlTime(accepted.time));
    let hold_id = invitation.hold_id.map(|hold_id| hold_id.as_uuid());
    let (id, state) = (invitation.id.as_uuid(), invitation.state.name());
    transaction.execute(SAVE, &[&id, &state, &customer_id, &accept_time, &hold_id]).await?;
    Ok(())
}

/// Expires all invitations to a locked quota that have no hold.
pub(crate) async fn expire(transaction: &Transaction, quota_id: QuotaId) -> Result<(), Error> {
    transaction.execute(EXPIRE, &[&quota_id.as_uuid()]).await?;
    Ok(())
}

fn read(row: &Row) -> Result<Invitation, Error> {
    let customer_id: Option<CustomerId> = row.read_optional_id("customer_id")?;
    let accepted = customer_id.zip(row.read_optional_time("accept_time")?);
    Ok(Invitation {
        id: row.read_id("invitation_id")?,
        quota_id: row.read_id("quota_id")?,
        email: row.read("email")?,
        unit_count: row.read_count("unit_count")?,
        state: row.read_named("state")?,
        accepted: accepted.map(|(customer_id, time)| Accepted { customer_id, time }),
        hold_id: row.read_optional_id("hold_id")?,
    })
}
