//! The checkout page and its buttons.

use askama::Template;
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};

use super::{
    Shared,
    records::{IntentStatus, Session, SessionStatus},
    session::{ActionError, SessionAction},
    stripe_json::{self, ApiError},
};

pub(super) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/checkout/{session}", get(page))
        .route("/checkout/{session}/{button}", post(press_button))
        .with_state(shared)
}

async fn page(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    shared.expire_due();
    let session = shared.state.read(|data| data.sessions.get(&id).cloned());
    let status = if session.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    render(status, session.as_ref())
}

async fn press_button(
    State(shared): State<Shared>,
    Path((id, button)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let action = match button.as_str() {
        "pay" => SessionAction::Pay,
        "decline" => SessionAction::Decline,
        "cancel" => SessionAction::Cancel,
        _ => return ApiError::missing("button", &button).into_response(),
    };
    let session = shared.act(&id, action);
    let accepts = headers.get(header::ACCEPT).map(|value| value.as_bytes()).unwrap_or_default();
    if String::from_utf8_lossy(accepts).contains("application/json") {
        return match session {
            Ok(session) => Json(stripe_json::session(&session, None)).into_response(),
            Err(error @ ActionError::NotOpen(_)) => {
                ApiError::from(error).with_status(StatusCode::CONFLICT).into_response()
            }
            Err(error) => ApiError::from(error).into_response(),
        };
    }
    match session {
        Ok(session) => {
            redirect_to_merchant(&session).unwrap_or_else(|| render(StatusCode::OK, Some(&session)))
        }
        Err(ActionError::NotOpen(session)) => render(StatusCode::CONFLICT, Some(&session)),
        Err(error) => ApiError::from(error).into_response(),
    }
}

/// Redirects to the session's success or cancel URL. Returns `None` if it has none or the scheme is not http(s).
fn redirect_to_merchant(session: &Session) -> Option<Response> {
    let url = if session.is_paid() { Some(&session.success_url) } else { session.cancel_url.as_ref() };
    let url = url?.replace("{CHECKOUT_SESSION_ID}", &session.id);
    let is_target = url.starts_with("http://") || url.starts_with("https://");
    is_target.then(|| Redirect::to(&url).into_response())
}

#[derive(Template)]
#[template(path = "checkout.html")]
struct Page<'a> {
    heading: &'static str,
    amount: String,
    session: Option<&'a Session>,
}

/// Renders the page of a session. `None`: says that the session does not exist.
fn render(status: StatusCode, session: Option<&Session>) -> Response {
    let heading = session.map_or("This checkout does not exist.", heading);
    let amount = session.map(amount).unwrap_or_default();
    match (Page { heading, amount, session }).render() {
        Ok(page) => (status, Html(page)).into_response(),
        Err(error) => ApiError::fault(&error.to_string()).into_response(),
    }
}

fn heading(session: &Session) -> &'static str {
    match (session.status, session.intent.status) {
        (SessionStatus::Open, _) => "Pay",
        (SessionStatus::Complete, IntentStatus::Succeeded) => "Paid",
        (SessionStatus::Complete, _) => "Declined",
        (SessionStatus::Expired, _) if session.intent.by_customer => "Canceled",
        (SessionStatus::Expired, _) => "Expired",
    }
}

/// Formats the amount with two decimals. Currencies without minor units appear 100 times too small, on this page only.
fn amount(session: &Session) -> String {
    let (whole, rest) = (session.amount_total / 100, session.amount_total % 100);
    format!("{} {whole}.{rest:02}", session.currency.to_uppercase())
}
