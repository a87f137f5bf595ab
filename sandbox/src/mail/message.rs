//! A decoded mail, for the HTTP API, the pages and tests.

use base64::{Engine, engine::general_purpose::STANDARD};
use mail_parser::{Message, MessageParser, MimeHeaders, PartType};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::mailbox::StoredEnvelope;

/// A received mail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Id in this catcher. Later ids sort after earlier ones.
    pub id: Uuid,
    /// Envelope sender (MAIL FROM). Empty for a bounce.
    pub from: String,
    /// Envelope recipients (RCPT TO).
    pub to: Vec<String>,
    /// Arrival time, RFC 3339 in UTC.
    pub time: String,
    /// Decoded subject; empty if the mail has none.
    pub subject: String,
    /// Header `Message-ID` without the angle brackets.
    pub message_id: Option<String>,
    /// Decoded plain-text body.
    pub text: Option<String>,
    /// Decoded HTML body.
    pub html: Option<String>,
    /// Embedded pictures that have a `Content-ID`.
    pub pictures: Vec<Picture>,
    /// All headers in their original order.
    pub headers: Vec<Header>,
}

/// An embedded picture, which the HTML refers to as `cid:<content_id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// `Content-ID` without the angle brackets.
    pub content_id: String,
    /// Media type, such as `image/png`.
    pub media_type: String,
    /// Content of the file in base64.
    pub content: String,
}

/// One header of a mail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Header name, as sent.
    pub name: String,
    /// Raw value, trimmed but not decoded.
    pub value: String,
}

impl Mail {
    pub(super) fn parse(id: Uuid, stored: StoredEnvelope, mail: &[u8]) -> Self {
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
            from: stored.from,
            to: stored.to,
            time: stored.time.to_string(),
            subject: message.subject().unwrap_or_default().to_owned(),
            message_id: message.message_id().map(str::to_owned),
            text,
            html,
            pictures: pictures(&message),
            headers: message.headers_raw().map(header).collect(),
        }
    }

    /// Returns the HTML with pictures as data URLs, because a browser cannot resolve `cid:`.
    pub(super) fn html_with_pictures(&self) -> Option<String> {
        let mut html = self.html.clone()?;
        for Picture { content_id, media_type, content } in &self.pictures {
            // Match the quotes too: one content id may be a prefix of another.
            let shown = format!("\"data:{media_type};base64,{content}\"");
            html = html.replace(&format!("\"cid:{content_id}\""), &shown);
        }
        Some(html)
    }
}

fn pictures(message: &Message<'_>) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for part in &message.parts {
        let kind = part.content_type().filter(|kind| kind.ctype() == "image");
        if let (Some(kind), Some(content_id)) = (kind, part.content_id()) {
            pictures.push(Picture {
                content_id: content_id.to_owned(),
                media_type: format!("image/{}", kind.subtype().unwrap_or_default()),
                content: STANDARD.encode(part.contents()),
            });
        }
    }
    pictures
}
