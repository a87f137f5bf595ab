//! A mail as people and tests want to see it: decoded.

use mail_parser::{MessageParser, PartType};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::mailbox::Postmark;

/// A mail that arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Its name here.
    pub id: Uuid,
    /// The sender, as SMTP was told.
    pub from: String,
    /// Who got it, as SMTP was told.
    pub to: Vec<String>,
    /// When it arrived, RFC 3339 in UTC.
    pub time: String,
    /// Its subject, decoded; empty if it has none.
    pub subject: String,
    /// Its `Message-ID`, without the brackets.
    pub message_id: Option<String>,
    /// Its plain text, decoded.
    pub text: Option<String>,
    /// Its HTML, decoded.
    pub html: Option<String>,
    /// All its headers, in order, as they came.
    pub headers: Vec<Header>,
}

/// One header of a mail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value, not decoded.
    pub value: String,
}

impl Mail {
    pub(super) fn read(id: Uuid, postmark: Postmark, mail: &[u8]) -> Self {
        let message = MessageParser::default().parse(mail).unwrap_or_default();
        let text = message.text_bodies().find_map(|part| match &part.body {
            PartType::Text(text) => Some(text.to_string()),
            _ => None,
        });
        let html = message.html_bodies().find_map(|part| match &part.body {
            PartType::Html(html) => Some(html.to_string()),
            _ => None,
        });
        let header =
            |(name, value): (&str, &str)| Header { name: name.to_owned(), value: value.trim().to_owned() };
        Self {
            id,
            from: postmark.from,
            to: postmark.to,
            time: postmark.time.to_string(),
            subject: message.subject().unwrap_or_default().to_owned(),
            message_id: message.message_id().map(str::to_owned),
            text,
            html,
            headers: message.headers_raw().map(header).collect(),
        }
    }
}
