//! Steps of one purchase through the front door, as an app should make them: a request id is created before the first attempt
//! and reused by retries, a broken stream is reopened, and retry delays of the server are respected.

use std::{future::Future, time::Duration};

use onsale_kit::{backoff::Retry, deadline::Deadline};
use onsale_proto::{
    claim::v1::{Claim, CreateClaimRequest, create_claim_request::Right},
    payment::v1::{CreatePaymentRequest, Payment, PaymentState, WatchPaymentRequest},
    queue::v1::{
        CloseReason, ExpireReason, JoinQueueRequest, LeaveQueueRequest, Standing, Turn, WatchQueueRequest,
        queue_update::Update,
    },
    ticketing::v1::{ListTicketsRequest, Ticket, TicketState},
    r#type::v1::UnitSelection,
};
use onsale_types::RequestId;
use tokio::time::timeout_at;
use tonic::{Code, Status};

use crate::{
    front_door::{FrontDoor, Person},
    retry::{backoff, classify, reason, retry_until},
};

/// Timeout of one attempt of a unary call, after which the call is retried.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);

/// Failure of a purchase.
#[derive(Debug, thiserror::Error)]
pub enum PurchaseError {
    /// A call was refused, or failed until the deadline.
    #[error("{step} failed: {}", describe(.status))]
    Call {
        /// The step as a gerund, such as `joining the queue`.
        step: &'static str,
        /// Status of the last attempt.
        status: Box<Status>,
    },
    /// The queue closed before the turn was granted.
    #[error("the queue closed: {}", .reason.as_str_name().trim_start_matches("CLOSE_REASON_"))]
    QueueClosed {
        /// Reason in the contract's terms.
        reason: CloseReason,
    },
    /// The entry in line expired.
    #[error("the entry in line expired: {}", .reason.as_str_name().trim_start_matches("EXPIRE_REASON_"))]
    EntryEnded {
        /// Reason in the contract's terms.
        reason: ExpireReason,
    },
    /// The provider's checkout page failed.
    #[error("failed to pay at {url}")]
    Provider {
        /// URL of the request.
        url: String,
        /// Error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The payment ended without a confirmation.
    #[error("the payment ended as {}", .state.as_str_name().trim_start_matches("PAYMENT_STATE_"))]
    PaymentEnded {
        /// Final state.
        state: PaymentState,
    },
    /// The deadline passed.
    #[error("{step} took too long")]
    TooLong {
        /// The step as a gerund, such as `waiting for the turn`.
        step: &'static str,
    },
}

impl PurchaseError {
    /// Returns the `ErrorInfo.reason` of the failed call, or `None` if there is none.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Call { status, .. } => reason(status),
            Self::QueueClosed { .. }
            | Self::EntryEnded { .. }
            | Self::Provider { .. }
            | Self::PaymentEnded { .. }
            | Self::TooLong { .. } => None,
        }
    }

    /// Returns true if the purchase failed because the event is sold out or not on sale.
    #[must_use]
    pub fn is_sold_out(&self) -> bool {
        let refused = ["EVENT_SOLD_OUT", "NOT_ENOUGH_UNITS", "EVENT_NOT_ON_SALE"];
        match self {
            Self::QueueClosed { reason } => *reason == CloseReason::SoldOut,
            Self::Call { .. } => self.reason().is_some_and(|reason| refused.contains(&reason.as_str())),
            Self::EntryEnded { .. }
            | Self::Provider { .. }
            | Self::PaymentEnded { .. }
            | Self::TooLong { .. } => false,
        }
    }
}

fn describe(status: &Status) -> String {
    match reason(status) {
        Some(reason) => format!("{reason}: {}", status.message()),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}

/// A signed-in customer who buys tickets of one event.
pub struct Buyer {
    door: FrontDoor,
    person: Person,
    event_id: String,
    deadline: Deadline,
}

impl Buyer {
    /// Returns a buyer whose every step fails after `deadline`.
    #[must_use]
    pub fn new(door: &FrontDoor, person: &Person, event_id: &str, deadline: Deadline) -> Self {
        Self { door: door.clone(), person: person.clone(), event_id: event_id.to_owned(), deadline }
    }

    /// Makes one unary call and retries it until the deadline.
    async fn call<T, F>(&self, step: &'static str, mut call: impl FnMut() -> F) -> Result<T, PurchaseError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let bounded = || {
            let answer = tokio::time::timeout(CALL_TIME_MAX, call());
            async move {
                match answer.await {
                    Ok(answer) => answer.map(tonic::Response::into_inner),
                    Err(_) => Err(Status::deadline_exceeded("no response in 10 s")),
                }
            }
        };
        let answer = retry_until(self.deadline, bounded).await;
        answer.map_err(|status| PurchaseError::Call { step, status: Box::new(status) })
    }

    /// Calls `JoinQueue`.
    pub async fn join(&self) -> Result<Standing, PurchaseError> {
        let request = JoinQueueRequest {
            request_id: RequestId::generate().to_string(),
            event_id: self.event_id.clone(),
            ..JoinQueueRequest::default()
        };
        let joined = self.call("joining the queue", || {
            let (mut queue, request) = (self.person.queue(), request.clone());
            async move { queue.join_queue(request).await }
        });
        Ok(joined.await?.standing.unwrap_or_default())
    }

    /// Watches the queue until the turn is granted. Calls `moved` with every position that the stream sends.
    pub async fn wait_for_turn(&self, mut moved: impl FnMut(u64)) -> Result<Turn, PurchaseError> {
        const STEP: &str = "waiting for the turn";
        let mut revision = 0;
        let mut waits = backoff();
        loop {
            let failed = match self.watch_once(&mut revision, &mut moved).await {
                Ok(Some(turn)) => return Ok(turn),
                Ok(None) => Status::unavailable("the stream ended"),
                Err(PurchaseError::Call { status, .. }) if classify(&status) != Retry::Never => *status,
                Err(error) => return Err(error),
            };
            if self.deadline.is_past() {
                return Err(PurchaseError::TooLong { step: STEP });
            }
            let asked = match classify(&failed) {
                Retry::After(delay) => delay,
                Retry::Never | Retry::Later => Duration::ZERO,
            };
            let wait = waits.next_delay().ok_or(PurchaseError::TooLong { step: STEP })?;
            tokio::time::sleep(wait.max(asked)).await;
        }
    }

    /// Reads one stream. Returns the turn, or `None` if the stream ends without one.
    async fn watch_once(
        &self,
        revision: &mut u64,
        moved: &mut impl FnMut(u64),
    ) -> Result<Option<Turn>, PurchaseError> {
        const STEP: &str = "watching the queue";
        let failed = |status: Status| PurchaseError::Call { step: STEP, status: Box::new(status) };
        let request = WatchQueueRequest {
            event_id: self.event_id.clone(),
            last_revision: *revision,
            ..WatchQueueRequest::default()
        };
        let mut queue = self.person.queue();
        let mut updates = queue.watch_queue(request).await.map_err(failed)?.into_inner();
        loop {
            let next = timeout_at(self.deadline.instant(), updates.message()).await;
            let next = next.map_err(|_| PurchaseError::TooLong { step: STEP })?;
            let Some(update) = next.map_err(failed)?.and_then(|response| response.update) else {
                return Ok(None);
            };
            *revision = update.revision.max(*revision);
            match update.update {
                Some(Update::PositionUpdate(update)) => moved(update.position),
                Some(Update::TurnGranted(granted)) => return Ok(granted.turn),
                Some(Update::QueueClosed(closed)) => {
                    return Err(PurchaseError::QueueClosed { reason: closed.reason() });
                }
                Some(Update::EntryExpired(expired)) => {
                    return Err(PurchaseError::EntryEnded { reason: expired.reason() });
                }
                Some(
                    Update::QueueMoved(_)
                    | Update::QueueSnapshot(_)
                    | Update::QueuePaused(_)
                    | Update::QueueResumed(_),
                )
                | None => {}
            }
        }
    }

    /// Calls `CreateClaim` with a turn token.
    pub async fn claim(&self, turn_token: &str, selection: UnitSelection) -> Result<Claim, PurchaseError> {
        let request = CreateClaimRequest {
            request_id: RequestId::generate().to_string(),
            event_id: self.event_id.clone(),
            right: Some(Right::TurnToken(turn_token.to_owned())),
            selections: vec![selection],
        };
        let created = self.call("claiming", || {
            let (mut claims, request) = (self.person.claims(), request.clone());
            async move { claims.create_claim(request).await }
        });
        Ok(created.await?.claim.unwrap_or_default())
    }

    /// Creates a payment and waits until its checkout page exists.
    pub async fn open_payment(&self, claim_id: &str) -> Result<Payment, PurchaseError> {
        let request = CreatePaymentRequest {
            request_id: RequestId::generate().to_string(),
            claim_id: claim_id.to_owned(),
            ..CreatePaymentRequest::default()
        };
        let created = self.call("opening the payment", || {
            let (mut payments, request) = (self.person.payments(), request.clone());
            async move { payments.create_payment(request).await }
        });
        let payment = created.await?.payment.unwrap_or_default();
        self.payment_until(payment, |payment| payment.state() != PaymentState::Initializing).await
    }

    /// Acts as the customer on the sandbox provider's checkout page. `act`: `pay`, `decline` (the card is declined) or `cancel`.
    pub async fn act_at_provider(&self, payment: &Payment, act: &str) -> Result<(), PurchaseError> {
        let url = format!("{}/{act}", payment.checkout_url);
        let mut waits = backoff();
        loop {
            let sent = self.door.http().post(&url).header("accept", "application/json").send().await;
            let source = match sent.and_then(reqwest::Response::error_for_status) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let for_good = source.status().is_some_and(|status| status.is_client_error());
            match waits.next_delay() {
                Some(wait) if !for_good && !self.deadline.is_past() => tokio::time::sleep(wait).await,
                Some(_) | None => return Err(PurchaseError::Provider { url, source }),
            }
        }
    }

    /// Watches the payment until it is CONFIRMED, FAILED or REFUNDED.
    pub async fn payment_outcome(&self, payment: Payment) -> Result<Payment, PurchaseError> {
        let ended = |payment: &Payment| match payment.state() {
            PaymentState::Confirmed | PaymentState::Failed | PaymentState::Refunded => true,
            PaymentState::Unspecified | PaymentState::Initializing | PaymentState::Pending => false,
        };
        self.payment_until(payment, ended).await
    }

    /// Watches the payment until `is_done` returns true.
    async fn payment_until(
        &self,
        mut payment: Payment,
        is_done: impl Fn(&Payment) -> bool,
    ) -> Result<Payment, PurchaseError> {
        const STEP: &str = "watching the payment";
        let mut waits = backoff();
        while !is_done(&payment) {
            let request = WatchPaymentRequest { payment_id: payment.payment_id.clone() };
            let mut payments = self.person.payments();
            let mut stream = match payments.watch_payment(request).await {
                Ok(stream) => Some(stream.into_inner()),
                Err(status) if classify(&status) != Retry::Never => None,
                Err(status) => return Err(PurchaseError::Call { step: STEP, status: Box::new(status) }),
            };
            while let Some(updates) = stream.as_mut() {
                let next = timeout_at(self.deadline.instant(), updates.message()).await;
                match next.map_err(|_| PurchaseError::TooLong { step: STEP })? {
                    Ok(Some(update)) => payment = update.payment.unwrap_or(payment),
                    // The stream ended or broke: reopen it unless the payment is done.
                    Ok(None) | Err(_) => stream = None,
                }
                if is_done(&payment) {
                    return Ok(payment);
                }
            }
            let wait = waits.next_delay().filter(|_| !self.deadline.is_past());
            tokio::time::sleep(wait.ok_or(PurchaseError::TooLong { step: STEP })?).await;
        }
        Ok(payment)
    }

    /// Waits until at least `count` tickets of the claim are issued and returns them.
    pub async fn tickets(&self, claim_id: &str, count: usize) -> Result<Vec<Ticket>, PurchaseError> {
        const STEP: &str = "waiting for the tickets";
        let request = ListTicketsRequest {
            claim_id: claim_id.to_owned(),
            states: vec![TicketState::Issued.into()],
            page_size: 200,
            ..ListTicketsRequest::default()
        };
        let mut waits = backoff();
        loop {
            let listed = self.call(STEP, || {
                let (mut tickets, request) = (self.person.tickets(), request.clone());
                async move { tickets.list_tickets(request).await }
            });
            let tickets = listed.await?.tickets;
            if tickets.len() >= count {
                return Ok(tickets);
            }
            let wait = waits.next_delay().filter(|_| !self.deadline.is_past());
            tokio::time::sleep(wait.ok_or(PurchaseError::TooLong { step: STEP })?).await;
        }
    }

    /// Calls `LeaveQueue`, which also ends a turn. Succeeds if there is no entry.
    pub async fn leave(&self) -> Result<(), PurchaseError> {
        let request = LeaveQueueRequest {
            request_id: RequestId::generate().to_string(),
            event_id: self.event_id.clone(),
        };
        let left = self.call("leaving the queue", || {
            let (mut queue, request) = (self.person.queue(), request.clone());
            async move { queue.leave_queue(request).await }
        });
        match left.await {
            Ok(_) => Ok(()),
            Err(PurchaseError::Call { status, .. }) if status.code() == Code::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}
