//! HTTP API for merchants (the part of Stripe's API that a checkout needs) and the fault controls for testers.

mod create;

use std::collections::BTreeMap;

use axum::{
    Form, Json, Router,
    extract::{Path, Query, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::Value;

use super::{
    Behaviour, Shared,
    behaviour::CallFault,
    provider_state::ProviderData,
    records::{Change, Event, IdempotentResponse, Refund},
    session::{SessionAction, new_event, new_id},
    stripe_json::{self, ApiError},
};

type Parameters = BTreeMap<String, String>;

/// Outcome of a call: changes to record, response body and events for webhooks.
struct Decision {
    changes: Vec<Change>,
    body: Value,
    events: Vec<Event>,
}

pub(super) fn router(shared: Shared) -> Router {
    let guarded = Router::new()
        .route("/v1/checkout/sessions", post(create_session))
        .route("/v1/checkout/sessions/{id}", get(get_session))
        .route("/v1/checkout/sessions/{id}/expire", post(expire_session))
        .route("/v1/refunds", post(create_refund))
        .route("/v1/refunds/{id}", get(get_refund))
        .route("/v1/payment_intents/{id}", get(get_intent))
        .layer(middleware::from_fn_with_state(shared.clone(), misbehave))
        .layer(middleware::from_fn_with_state(shared.clone(), authenticate));
    guarded.route("/sandbox/behaviour", get(get_behaviour).post(set_behaviour)).with_state(shared)
}

async fn authenticate(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let expected = format!("Bearer {}", shared.secret_key);
    let presented = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    if presented != Some(expected.as_bytes()) {
        let message = "Invalid API Key provided";
        return ApiError::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message).into_response();
    }
    next.run(request).await
}

async fn misbehave(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let (fault, delay) = shared.faults.consume_call_fault();
    tokio::time::sleep(delay).await;
    match fault {
        CallFault::None => next.run(request).await,
        CallFault::Reject => {
            let message = "injected fault: call rejected";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", message).into_response()
        }
        CallFault::LoseResponse => {
            next.run(request).await;
            ApiError::fault("injected fault: response lost").into_response()
        }
    }
}

async fn create_session(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Form(parameters): Form<Parameters>,
) -> Result<Response, ApiError> {
    let now = shared.now_seconds();
    shared.respond_once("/v1/checkout/sessions", &headers, parameters, |_data, parameters| {
        let session = create::session(parameters, now)?;
        let body = stripe_json::session(&session, Some(&shared.public_url));
        Ok(Decision { changes: vec![Change::Session(session)], body, events: Vec::new() })
    })
}

async fn get_session(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<Value>, ApiError> {
    shared.expire_due();
    let session = shared.state.read(|data| data.sessions.get(&id).cloned());
    let session = session.ok_or_else(|| ApiError::missing("checkout.session", &id))?;
    let mut body = stripe_json::session(&session, Some(&shared.public_url));
    let expands = query.iter().any(|(name, value)| name == "expand[]" && value == "payment_intent");
    let has_intent = body.get("payment_intent").is_some_and(Value::is_string);
    if let Some(fields) = body.as_object_mut().filter(|_| expands && has_intent) {
        fields.insert("payment_intent".to_owned(), stripe_json::intent(&session));
    }
    Ok(Json(body))
}

async fn expire_session(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let session = shared.act(&id, SessionAction::Expire)?;
    Ok(Json(stripe_json::session(&session, Some(&shared.public_url))))
}

async fn create_refund(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Form(parameters): Form<Parameters>,
) -> Result<Response, ApiError> {
    let now = shared.now_seconds();
    shared.respond_once("/v1/refunds", &headers, parameters, |data, parameters| {
        let intent = parameters.get("payment_intent").map(String::as_str).unwrap_or_default();
        let session = data.session_of_intent(intent);
        let session = session.ok_or_else(|| ApiError::missing("payment_intent", intent))?;
        if !session.is_paid() {
            let message = "This PaymentIntent does not have a successful charge to refund.";
            return Err(ApiError::invalid(message));
        }
        if data.refunds.contains_key(intent) {
            let message = "The charge has already been refunded.";
            return Err(ApiError::invalid(message).with_code("charge_already_refunded"));
        }
        let refund = Refund {
            id: new_id("re"),
            payment_intent: session.intent.id.clone(),
            amount: session.amount_total,
            currency: session.currency.clone(),
            metadata: create::fields(parameters, "metadata"),
            created: now,
        };
        let body = stripe_json::refund(&refund);
        let events = vec![new_event("refund.created", &body, now)];
        Ok(Decision { changes: vec![Change::Refund(refund)], body, events })
    })
}

async fn get_refund(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let refund = shared
        .state
        .read(|data| data.refunds.values().find(|refund| refund.id == id).map(stripe_json::refund));
    refund.map(Json).ok_or_else(|| ApiError::missing("refund", &id))
}

async fn get_intent(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let intent = shared.state.read(|data| data.session_of_intent(&id).map(stripe_json::intent));
    intent.map(Json).ok_or_else(|| ApiError::missing("payment_intent", &id))
}

async fn get_behaviour(State(shared): State<Shared>) -> Json<Behaviour> {
    Json(shared.faults.get())
}

async fn set_behaviour(State(shared): State<Shared>, Json(behaviour): Json<Behaviour>) -> Json<Behaviour> {
    shared.faults.set(behaviour);
    Json(shared.faults.get())
}

impl Shared {
    /// Runs `decide` at most once per idempotency key. A repeated call receives the stored response; a different call
    /// with the same key is refused. Error responses are not stored.
    fn respond_once(
        &self,
        path: &'static str,
        headers: &HeaderMap,
        parameters: Parameters,
        decide: impl FnOnce(&ProviderData, &Parameters) -> Result<Decision, ApiError>,
    ) -> Result<Response, ApiError> {
        let key = headers
            .get("idempotency-key")
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        // One lock around the lookup and the change: concurrent calls with one key must not both be executed.
        let decided = self.state.change(|data| {
            if let Some(stored) = key.as_ref().and_then(|key| data.responses.get(key)) {
                return (
                    Vec::new(),
                    replay(stored, path, &parameters).map(|replayed| (replayed, Vec::new())),
                );
            }
            let Decision { mut changes, body, events } = match decide(data, &parameters) {
                Ok(decision) => decision,
                Err(error) => return (Vec::new(), Err(error)),
            };
            let body = body.to_string();
            if let Some(key) = key {
                let path = path.to_owned();
                changes.push(Change::Response(IdempotentResponse {
                    key,
                    path,
                    parameters,
                    body: body.clone(),
                }));
            }
            changes.extend(events.iter().cloned().map(Change::Event));
            (changes, Ok((json_text(body), events)))
        })?;
        let (response, events) = decided?;
        self.webhooks.send_all(events);
        Ok(response)
    }
}

fn replay(stored: &IdempotentResponse, path: &str, parameters: &Parameters) -> Result<Response, ApiError> {
    if stored.path != path || stored.parameters != *parameters {
        let message = "Keys for idempotent requests can only be used with the same parameters they were first \
                       used with.";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "idempotency_error", message));
    }
    let mut response = json_text(stored.body.clone());
    response.headers_mut().insert("idempotent-replayed", header::HeaderValue::from_static("true"));
    Ok(response)
}

fn json_text(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
