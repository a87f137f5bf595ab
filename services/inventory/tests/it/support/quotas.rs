//! Support for tests of quotas: an organizer who creates quotas and invites, and invitees who accept and buy.

use onsale_proto::{
    auth::v1::Role,
    events::v1::QuotaInvitation,
    inventory::v1::{self as pb, quota_service_client::QuotaServiceClient},
    r#type::v1::UnitSelection,
};
use onsale_testkit::tokens::identity;
use tonic::{Status, transport::Channel};

use super::{ORGANIZER, World, a_reservation, request_id, time, with_token};

/// A time in the far future and before the event.
pub(crate) const RETURN_SECONDS: i64 = 3_900_000_000;

pub(crate) fn a_quota(event: &pb::Event, selection: UnitSelection) -> pb::CreateQuotaRequest {
    pb::CreateQuotaRequest {
        request_id: request_id(),
        event_id: event.event_id.clone(),
        name: "Fan club".to_owned(),
        selection: Some(selection),
        return_time: time(RETURN_SECONDS),
    }
}

pub(crate) fn an_invitee(email: &str, unit_count: u32) -> pb::Invitee {
    pb::Invitee { email: email.to_owned(), unit_count, locale: String::new() }
}

impl World {
    pub(crate) async fn quotas(&self) -> QuotaServiceClient<Channel> {
        QuotaServiceClient::new(self.service.channel().await.unwrap())
    }

    pub(crate) async fn create_quota(
        &self,
        organizer: &str,
        message: pb::CreateQuotaRequest,
    ) -> Result<pb::Quota, Status> {
        let answer = self.quotas().await.create_quota(self.as_organizer(organizer, message)).await?;
        Ok(answer.into_inner().quota.unwrap())
    }

    /// Creates a quota under a new request id.
    pub(crate) async fn keep(
        &self,
        event: &pb::Event,
        selection: UnitSelection,
    ) -> Result<pb::Quota, Status> {
        self.create_quota(ORGANIZER, a_quota(event, selection)).await
    }

    pub(crate) async fn list_quotas(&self, event: &pb::Event) -> Vec<pb::Quota> {
        let message = pb::ListQuotasRequest { event_id: event.event_id.clone(), ..Default::default() };
        let request = self.as_organizer(ORGANIZER, message);
        self.quotas().await.list_quotas(request).await.unwrap().into_inner().quotas
    }

    pub(crate) async fn invite_as(
        &self,
        organizer: &str,
        message: pb::InviteToQuotaRequest,
    ) -> Result<pb::InviteToQuotaResponse, Status> {
        let answer = self.quotas().await.invite_to_quota(self.as_organizer(organizer, message)).await?;
        Ok(answer.into_inner())
    }

    pub(crate) async fn invite(
        &self,
        quota: &pb::Quota,
        invitees: Vec<pb::Invitee>,
    ) -> Result<pb::InviteToQuotaResponse, Status> {
        let message =
            pb::InviteToQuotaRequest { request_id: request_id(), quota_id: quota.quota_id.clone(), invitees };
        self.invite_as(ORGANIZER, message).await
    }

    /// Returns the token that was mailed to `email`.
    pub(crate) async fn mailed_token(&self, email: &str) -> String {
        let published = self.published::<QuotaInvitation>().await;
        let mail = published.iter().find(|mail| mail.email == email).unwrap();
        mail.accept_url.split_once("#token=").unwrap().1.to_owned()
    }

    pub(crate) async fn accept(
        &self,
        customer: &str,
        token: &str,
    ) -> Result<pb::AcceptInvitationResponse, Status> {
        let message =
            pb::AcceptInvitationRequest { request_id: request_id(), invitation_token: token.to_owned() };
        let request = with_token(message, &self.service.issuer.token_for(customer, &[Role::Customer]));
        Ok(self.quotas().await.accept_invitation(request).await?.into_inner())
    }

    /// Invites `customer` for `unit_count` units and lets them accept; returns the token.
    pub(crate) async fn invited(&self, quota: &pb::Quota, customer: &str, unit_count: u32) -> String {
        let email = format!("{customer}@example.test");
        self.invite(quota, vec![an_invitee(&email, unit_count)]).await.unwrap();
        let token = self.mailed_token(&email).await;
        self.accept(customer, &token).await.unwrap();
        token
    }

    /// Reserves with an invitation under new ids.
    pub(crate) async fn hold_invited(
        &self,
        event: &pb::Event,
        selection: UnitSelection,
        customer: &str,
        token: &str,
    ) -> Result<pb::Hold, Status> {
        let message = an_invited_reservation(event, selection, customer, token);
        Ok(self.reserve(message).await?.hold.unwrap())
    }

    /// Moves the return time of every quota into the past.
    pub(crate) async fn end_quotas(&self) {
        let sql = "UPDATE quota SET return_time = now() - interval '1s'";
        self.postgres.execute("end quotas", sql, &[]).await.unwrap();
    }

    /// Asserts that the counts of stock and quotas agree with the rows.
    pub(crate) async fn assert_counts(&self) {
        let wrong_stock = "SELECT count(*) FROM sector_sale s
            LEFT JOIN LATERAL (
                SELECT count(*) AS taken, count(*) FILTER (WHERE h.state = 'COMMITTED') AS sold,
                    count(*) FILTER (WHERE q.state = 'OPEN') AS kept
                FROM hold_unit u LEFT JOIN hold h USING (hold_id) LEFT JOIN quota q ON q.quota_id = u.hold_id
                WHERE u.sector_id = s.sector_id) c ON true
            WHERE (s.taken_count, s.sold_count, s.kept_count) <> (c.taken, c.sold, c.kept)";
        assert_eq!(self.number(wrong_stock, &[]).await, 0, "the counts of stock differ from the rows");
        let wrong_quotas = "SELECT count(*) FROM quota q
            LEFT JOIN LATERAL (SELECT coalesce(sum(cardinality(h.units)), 0) AS used
                FROM hold h WHERE h.quota_id = q.quota_id AND h.state <> 'RELEASED') u ON true
            LEFT JOIN LATERAL (SELECT coalesce(sum(i.unit_count), 0) AS promised FROM invitation i
                WHERE i.quota_id = q.quota_id AND i.state IN ('PENDING', 'ACCEPTED')) p ON true
            LEFT JOIN LATERAL (SELECT coalesce(sum(cardinality(h.units)), 0) AS held
                FROM hold h WHERE h.quota_id = q.quota_id AND h.state = 'HELD') h ON true
            WHERE q.used_count <> u.used
                OR q.invited_count <> CASE q.state WHEN 'OPEN' THEN p.promised - h.held ELSE 0 END
                OR (SELECT count(*) FROM hold_unit k WHERE k.sector_id = q.sector_id AND k.hold_id = q.quota_id)
                    <> CASE q.state WHEN 'OPEN' THEN cardinality(q.units) - q.used_count ELSE 0 END";
        assert_eq!(self.number(wrong_quotas, &[]).await, 0, "the counts of a quota differ from the rows");
    }
}

pub(crate) fn an_invited_reservation(
    event: &pb::Event,
    selection: UnitSelection,
    customer: &str,
    token: &str,
) -> pb::ReserveUnitsRequest {
    pb::ReserveUnitsRequest {
        customer_id: identity(customer).customer_id().to_string(),
        invitation_token: token.to_owned(),
        ..a_reservation(event, vec![selection])
    }
}
