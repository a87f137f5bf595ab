//! Mail composed from the content of a message in one language, as HTML and as plain text. Text from outside is escaped in the
//! HTML and kept on one line in both.

mod compose;

use askama::Template as _;

use super::{content::Content, language::Language, qr, text::one_line};

/// Longer subjects are cut: mail programs show less.
const SUBJECT_CHARS_MAX: usize = 150;
/// Further tickets show their codes as text only: mail servers refuse mails of several megabytes.
const PICTURES_MAX: usize = 100;

/// Mail without its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mail {
    pub(crate) subject: String,
    pub(crate) text: String,
    /// Refers to the pictures by `cid:` and their content id.
    pub(crate) html: String,
    /// QR codes of the tickets.
    pub(crate) pictures: Vec<Picture>,
}

/// PNG that is part of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) content_id: String,
    pub(crate) file_name: String,
    pub(crate) png: Vec<u8>,
}

impl Mail {
    /// Composes the mail in `language`. It links to `web_url` unless that is empty.
    pub(crate) fn compose(
        content: &Content,
        language: Language,
        web_url: &str,
    ) -> Result<Self, askama::Error> {
        let mut document = compose::document(content, language, web_url);
        let pictures = picture_codes(&mut document.tickets);
        let subject = one_line(&document.subject).chars().take(SUBJECT_CHARS_MAX).collect();
        Ok(Self { subject, text: Text(&document).render()?, html: Html(&document).render()?, pictures })
    }
}

/// Makes a picture of each ticket's code. A code that is too long gets none, as the mail shows it as text too.
fn picture_codes(tickets: &mut [TicketLine]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for (number, ticket) in (1..).zip(tickets).take(PICTURES_MAX) {
        let Some(png) = qr::png(&ticket.code) else { continue };
        let content_id = format!("ticket-{number}@onsale");
        ticket.picture = Some(content_id.clone());
        pictures.push(Picture { content_id, file_name: format!("ticket-{number}.png"), png });
    }
    pictures
}

/// Input of both templates, which omit empty parts.
#[derive(Clone, Debug)]
struct Document {
    language: Language,
    subject: String,
    /// Paragraphs before all other parts.
    intro: Vec<String>,
    details: Vec<LabeledText>,
    items: Vec<ItemLine>,
    total: Option<LabeledText>,
    link: Option<Link>,
    tickets_heading: &'static str,
    tickets: Vec<TicketLine>,
    /// Last paragraph of the mail.
    closing: &'static str,
}

#[derive(Clone, Debug)]
struct LabeledText {
    label: String,
    value: String,
}

#[derive(Clone, Debug)]
struct TicketLine {
    label: String,
    code: String,
    /// Content id of the QR picture.
    picture: Option<String>,
}

#[derive(Clone, Debug)]
struct ItemLine {
    name: String,
    /// Empty in general admission.
    seats: String,
    count_and_price: String,
    amount: String,
}

#[derive(Clone, Debug)]
struct Link {
    label: String,
    url: String,
}

#[derive(askama::Template)]
#[template(path = "mail.html")]
struct Html<'a>(&'a Document);

#[derive(askama::Template)]
#[template(path = "mail.txt")]
struct Text<'a>(&'a Document);

#[cfg(test)]
mod tests;
