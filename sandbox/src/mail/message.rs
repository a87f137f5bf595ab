//! A mail as people and tests want to see it: decoded.

use base64::{Engine, engine::general_purpose::STANDARD};
use mail_parser::{Message, MessageParser, MimeHeaders, PartType};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::mailbox::StoredEnvelope;

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
    /// The pictures that came inside of it.
    pub pictures: Vec<Picture>,
    /// All its headers, in order, as they came.
    pub headers: Vec<Header>,
}

/// A picture inside of a mail, which its HTML shows as `cid:…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// What the HTML calls it.
    pub content_id: String,
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// The file, in base64.
    pub content: String,
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

    /// Its HTML with the pictures in it, for who cannot follow a `cid:`.
    pub(super) fn html_with_pictures(&self) -> Option<String> {
        let mut html = self.html.clone()?;
        for Picture { content_id, media_type, content } in &self.pictures {
            // With the quote, as one name may begin like another.
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
