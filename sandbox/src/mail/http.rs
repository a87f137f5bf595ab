//! HTTP API and pages of the mail catcher. Pages escape all content of a mail and show its HTML in a sandboxed frame.

use std::sync::Arc;

use askama::Template;
use axum::{
    Json, Router,
    extract::{Path, Query as UrlQuery, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use onsale_kit::error::Chain;
use serde_json::json;
use uuid::Uuid;

use super::{
    behaviour::{Behaviour, FaultInjector},
    mailbox::{Mailbox, MailboxError, Query},
    message::Mail,
};

/// Content security policy of all pages: no scripts and no external content, because a mail is untrusted input.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

#[derive(Clone)]
struct Shared {
    mailbox: Arc<Mailbox>,
    faults: FaultInjector,
}

#[derive(Template)]
#[template(path = "mails.html")]
struct ListPage {
    mails: Vec<Mail>,
    count: usize,
}

#[derive(Template)]
#[template(path = "mail.html")]
struct MailPage {
    html: Option<String>,
    mail: Mail,
}

/// Reasons for an error response.
enum PageError {
    NotFound,
    Mailbox(MailboxError),
    Page(askama::Error),
}

impl From<MailboxError> for PageError {
    fn from(error: MailboxError) -> Self {
        Self::Mailbox(error)
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        Self::Page(error)
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Mailbox(error) => {
                tracing::error!(error = %Chain(&error), "failed to read mails");
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Page(error) => {
                tracing::error!(error = %Chain(&error), "failed to render a page");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        let error = status.canonical_reason().unwrap_or_default();
        (status, Json(json!({ "error": error }))).into_response()
    }
}

pub(super) fn router(mailbox: Arc<Mailbox>, faults: FaultInjector) -> Router {
    Router::new()
        .route("/", get(list_page))
        .route("/mails/{id}", get(mail_page))
        .route("/api/mails", get(list).delete(clear))
        .route("/api/mails/{id}", get(one))
        .route("/sandbox/behaviour", get(behaviour).post(set_behaviour))
        .with_state(Shared { mailbox, faults })
}

async fn list(State(shared): State<Shared>, UrlQuery(query): UrlQuery<Query>) -> Result<Response, PageError> {
    let mails = shared.mailbox.list(&query).await?;
    Ok(Json(json!({ "mails": mails })).into_response())
}

async fn one(State(shared): State<Shared>, Path(id): Path<Uuid>) -> Result<Json<Mail>, PageError> {
    shared.mailbox.get(id).await?.map(Json).ok_or(PageError::NotFound)
}

async fn clear(State(shared): State<Shared>) -> StatusCode {
    shared.mailbox.clear().await;
    StatusCode::NO_CONTENT
}

async fn behaviour(State(shared): State<Shared>) -> Json<Behaviour> {
    Json(shared.faults.get())
}

async fn set_behaviour(State(shared): State<Shared>, Json(behaviour): Json<Behaviour>) -> Json<Behaviour> {
    shared.faults.set(behaviour);
    Json(behaviour)
}

async fn list_page(
    State(shared): State<Shared>,
    UrlQuery(query): UrlQuery<Query>,
) -> Result<Response, PageError> {
    let mails = shared.mailbox.list(&query).await?;
    page(&ListPage { mails, count: shared.mailbox.count() })
}

async fn mail_page(State(shared): State<Shared>, Path(id): Path<Uuid>) -> Result<Response, PageError> {
    let mail = shared.mailbox.get(id).await?.ok_or(PageError::NotFound)?;
    page(&MailPage { html: mail.html_with_pictures(), mail })
}

fn page(template: &impl Template) -> Result<Response, PageError> {
    Ok(([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(template.render()?)).into_response())
}
