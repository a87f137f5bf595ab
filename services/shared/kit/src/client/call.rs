//! A single call: deadline, attempts and retries.

use std::{net::SocketAddr, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Response, Uri,
    header::{AUTHORIZATION, USER_AGENT},
    uri::PathAndQuery,
};
use hyper::body::Incoming;
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status, body::Body};

use super::{
    Shared,
    backend::InFlight,
    balance::Picked,
    metrics::{CallCount, MethodInfo},
    request::Outgoing,
    response::{self, Pushback, connection_broken, deadline_exceeded, local_status},
};
use crate::{backoff::Backoff, deadline::Deadline, server::grpc_timeout};

/// Connections that one attempt tries if each closes before the request could be sent.
const CONNECTIONS_TRIED_MAX: usize = 8;

const OWN_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("onsale-kit/", env!("CARGO_PKG_VERSION")));

/// A response whose headers have arrived.
struct StartedResponse {
    response: Response<Incoming>,
    in_flight: InFlight,
}

struct Failure {
    status: Status,
    pushback: Pushback,
    /// The address of the attempt, `None` if no connection was found.
    address: Option<SocketAddr>,
}

impl Failure {
    fn local(status: Status, address: Option<SocketAddr>) -> Self {
        Self { status, pushback: Pushback::Unspecified, address }
    }
}

impl Shared {
    /// Makes the call. `current` is the deadline of the call on whose behalf it is made.
    pub(super) async fn call(
        self: Arc<Self>,
        uri: Uri,
        headers: HeaderMap,
        body: Body,
        current: Option<Deadline>,
    ) -> Result<Response<Body>, Status> {
        let method = Arc::clone(self.methods.get(uri.path()));
        let mut count = CallCount::new(Arc::clone(&method));
        let answered = async {
            let deadline = self.deadline(&method, &headers, current)?;
            // The stream's own deadline is long, but it must begin as soon as any other response.
            let begin_by = deadline.min(Deadline::after(self.config.deadline));
            let attempts = async {
                // Under the bound, because the body of a call that is passed on is still being received.
                let outgoing = self.outgoing(&method, &uri, headers, body).await?;
                self.attempts(&method, outgoing, deadline, begin_by).await
            };
            let answer = begin_by.bound(attempts).await.unwrap_or_else(|_passed| Err(deadline_exceeded()))?;
            Ok((answer, deadline))
        };
        match answered.await {
            Ok((answer, deadline)) => {
                Ok(response::started(answer.response, deadline, answer.in_flight, count))
            }
            Err(status) => {
                let status: Status = status;
                count.end(status.code());
                Err(status)
            }
        }
    }

    /// Returns the earliest of the settings' limit, the request's `grpc-timeout` and the running call's deadline.
    fn deadline(
        &self,
        method: &MethodInfo,
        headers: &HeaderMap,
        current: Option<Deadline>,
    ) -> Result<Deadline, Status> {
        let too_late = || {
            let message = "too little time is left to make the call";
            local_status(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, message)
        };
        let span =
            if method.is_server_streaming { self.config.stream_deadline } else { self.config.deadline };
        let mut deadline = Deadline::after(span);
        if let Some(current) = current {
            deadline = deadline.min(current.for_call().ok_or_else(too_late)?);
        }
        if let Ok(Some(asked)) = grpc_timeout::from_headers(headers) {
            deadline = deadline.min(Deadline::after(asked));
        }
        if deadline.is_past() { Err(too_late()) } else { Ok(deadline) }
    }

    async fn outgoing(
        &self,
        method: &MethodInfo,
        uri: &Uri,
        mut headers: HeaderMap,
        body: Body,
    ) -> Result<Outgoing, Status> {
        // A request that is passed on keeps its own token and user agent.
        if let Some(tokens) = &self.tokens
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, tokens.bearer());
        }
        headers.entry(USER_AGENT).or_insert(OWN_USER_AGENT);
        let uri = self.absolute(uri)?;
        if method.is_request_single {
            Outgoing::keep(uri, headers, body, self.config.request_bytes_max).await
        } else {
            Ok(Outgoing::once(uri, headers, body))
        }
    }

    /// Combines the target's authority, which is independent of the called address, with the method's path.
    fn absolute(&self, uri: &Uri) -> Result<Uri, Status> {
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = Some(uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")));
        Uri::from_parts(parts).map_err(|error| {
            let message = format!("failed to build the URI of the method: {error}");
            local_status(Code::Internal, ErrorReason::Internal, message)
        })
    }

    /// Attempts the call until it succeeds or may not be retried.
    async fn attempts(
        &self,
        method: &MethodInfo,
        mut outgoing: Outgoing,
        deadline: Deadline,
        begin_by: Deadline,
    ) -> Result<StartedResponse, Status> {
        self.budget.deposit();
        let mut backoff = None;
        let mut avoid = None;
        loop {
            let failure = match self.attempt(&mut outgoing, deadline, avoid).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let may_help = failure.status.code() == Code::Unavailable && method.is_idempotent;
            if !may_help || !method.is_request_single {
                return Err(failure.status);
            }
            let backoff = backoff.get_or_insert_with(|| Backoff::new(self.config.retry.backoff));
            let (Some(delay), Some(asked)) = (backoff.next_delay(), self.requested_wait(&failure)) else {
                return Err(failure.status);
            };
            let delay = delay.max(asked);
            if delay >= begin_by.remaining() {
                return Err(failure.status);
            }
            // Checked last, so that only retries that are really made are paid for.
            if !self.budget.withdraw() {
                method.count_budget_exhausted();
                return Err(failure.status);
            }
            method.count_retry();
            tracing::debug!(neighbor = self.name, ?delay, status = %failure.status, "call failed, retrying");
            tokio::time::sleep(delay).await;
            avoid = failure.address;
        }
    }

    /// Returns the wait that the neighbor asks for, `None` if it forbids a retry.
    fn requested_wait(&self, failure: &Failure) -> Option<std::time::Duration> {
        match failure.pushback {
            Pushback::Never => None,
            Pushback::Unspecified => Some(std::time::Duration::ZERO),
            Pushback::After(wait) => {
                // A draining instance speaks only for itself: another one can take the retry immediately.
                let has_other = failure.address.is_some_and(|address| self.balancer.has_other(address));
                let other_may_answer = has_other && response::is_draining(&failure.status);
                Some(if other_may_answer { std::time::Duration::ZERO } else { wait })
            }
        }
    }

    /// Sends the request once. A request that a closing connection has not processed is sent over another one: that does
    /// not count as a retry and is safe for every method.
    async fn attempt(
        &self,
        outgoing: &mut Outgoing,
        deadline: Deadline,
        avoid: Option<SocketAddr>,
    ) -> Result<StartedResponse, Failure> {
        for _ in 0..CONNECTIONS_TRIED_MAX {
            let picked = self.balancer.pick(avoid).await;
            let Picked { backend, mut sender, in_flight } =
                picked.map_err(|unreachable| Failure::local(unavailable(unreachable.to_string()), None))?;
            let address = Some(backend.address());
            let Some(request) = outgoing.attempt(deadline) else { break };
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => {
                    let Some(status) = response::failure_status(&response) else {
                        return Ok(StartedResponse { response, in_flight });
                    };
                    if status.code() != Code::Unavailable {
                        return Ok(StartedResponse { response, in_flight });
                    }
                    backend.eject();
                    let pushback = response::pushback(response.headers(), &status);
                    return Err(Failure { status, pushback, address });
                }
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) => outgoing.restore(unsent),
                None if response::is_unprocessed(error.error()) && outgoing.is_kept() => {}
                None => return Err(Failure::local(connection_broken(error.error()), address)),
            }
        }
        Err(Failure::local(
            unavailable(format!("connections to {} close as soon as they open", self.name)),
            None,
        ))
    }
}

fn unavailable(message: String) -> Status {
    local_status(Code::Unavailable, ErrorReason::DependencyUnavailable, message)
}
