//! People who use the service, and what they ask.

use onsale_proto::{
    auth::v1::Role,
    queue::v1::{self as pb, queue_service_client::QueueServiceClient},
};
use onsale_testkit::{
    service::TestService,
    tokens::{TestIssuer, identity},
};
use tonic::{Request, Status, transport::Channel};
use uuid::Uuid;

use crate::watcher::Watcher;

/// Somebody, known by a subject.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    subject: String,
    token: String,
}

impl Person {
    pub(crate) fn new(issuer: &TestIssuer, role: Role) -> Self {
        let subject = Uuid::now_v7().to_string();
        let token = issuer.token_for(&subject, &[role]);
        Self { subject, token }
    }

    pub(crate) fn ask<T>(&self, message: T) -> Request<T> {
        bearer(&self.token, message)
    }

    /// The same person with a token that `service` takes.
    pub(crate) fn known_to(&self, service: &TestService, role: Role) -> Self {
        Self { subject: self.subject.clone(), token: service.issuer.token_for(&self.subject, &[role]) }
    }

    /// Joins through this connection.
    pub(crate) async fn join(&self, channel: &Channel, event: &str) -> Result<pb::JoinQueueResponse, Status> {
        let request = pb::JoinQueueRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: event.to_owned(),
            ..pb::JoinQueueRequest::default()
        };
        Ok(QueueServiceClient::new(channel.clone()).join_queue(self.ask(request)).await?.into_inner())
    }

    /// Asks through this connection.
    pub(crate) async fn position(&self, channel: &Channel, event: &str) -> Result<pb::Standing, Status> {
        let request = pb::GetPositionRequest { event_id: event.to_owned(), queue_token: String::new() };
        let answer = QueueServiceClient::new(channel.clone()).get_position(self.ask(request)).await?;
        Ok(answer.into_inner().standing.unwrap())
    }

    /// Leaves through this connection.
    pub(crate) async fn leave(&self, channel: &Channel, event: &str) -> Result<pb::Entry, Status> {
        let request =
            pb::LeaveQueueRequest { request_id: Uuid::now_v7().to_string(), event_id: event.to_owned() };
        let answer = QueueServiceClient::new(channel.clone()).leave_queue(self.ask(request)).await?;
        Ok(answer.into_inner().entry.unwrap())
    }

    /// Opens a stream through this connection.
    pub(crate) async fn watch(
        &self,
        channel: &Channel,
        event: &str,
        last_revision: u64,
    ) -> Result<Watcher, Status> {
        let request =
            pb::WatchQueueRequest { event_id: event.to_owned(), queue_token: String::new(), last_revision };
        let mut client = QueueServiceClient::new(channel.clone());
        let stream = client.watch_queue(self.ask(request)).await?.into_inner();
        Ok(Watcher::new(stream, last_revision))
    }

    pub(crate) fn customer_id(&self) -> String {
        identity(&self.subject).customer_id().to_string()
    }

    pub(crate) fn organizer_id(&self) -> String {
        identity(&self.subject).organizer_id().to_string()
    }
}

/// A request with a token.
pub(crate) fn bearer<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}
