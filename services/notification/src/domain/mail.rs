//! A mail: what a message says, written out in a language, as HTML and as plain text. Everything that comes from elsewhere
//! is escaped in the HTML and stands on one line in both.

mod compose;

use askama::Template as _;

use super::{content::Content, language::Language, qr, text::one_line};

/// A subject is cut here: mail programs show less.
const SUBJECT_CHARS_MAX: usize = 150;
/// More tickets than this have their codes as text alone: mail servers refuse mails of megabytes.
const PICTURES_MAX: usize = 100;

/// A mail without its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// On one line.
    pub subject: String,
    /// Plain text.
    pub text: String,
    /// HTML. It shows the pictures by their `cid:`.
    pub html: String,
    /// The codes of its tickets, to be scanned.
    pub pictures: Vec<Picture>,
}

/// A PNG inside of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// What the HTML calls it.
    pub content_id: String,
    /// What it is called when it is saved.
    pub file_name: String,
    /// The file.
    pub png: Vec<u8>,
}

impl Mail {
    /// Writes `content` out in `language`, with a link to `web_url` unless that is empty.
    pub fn write(content: &Content, language: Language, web_url: &str) -> Result<Self, askama::Error> {
        let mut document = compose::document(content, language, web_url);
        let pictures = picture_codes(&mut document.tickets);
        let subject = one_line(&document.subject).chars().take(SUBJECT_CHARS_MAX).collect();
        Ok(Self { subject, text: Text(&document).render()?, html: Html(&document).render()?, pictures })
    }
}

/// Makes a picture of every ticket's code; one that cannot be made is left out, as the code stands there too.
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

/// What every mail is made of; parts that are empty are left out.
#[derive(Clone, Debug)]
struct Document {
    language: Language,
    subject: String,
    /// Paragraphs before everything else.
    intro: Vec<String>,
    /// What it is about: label and value.
    facts: Vec<Line>,
    /// What was bought.
    items: Vec<Item>,
    /// What it costs together.
    total: Option<Line>,
    /// What to do, and where.
    link: Option<Link>,
    /// What stands above the tickets.
    tickets_heading: &'static str,
    tickets: Vec<TicketLine>,
    /// The last paragraph.
    closing: &'static str,
}

/// A label and what it labels.
#[derive(Clone, Debug)]
struct Line {
    label: String,
    value: String,
}

/// A ticket: where it admits to, and what admits.
#[derive(Clone, Debug)]
struct TicketLine {
    label: String,
    code: String,
    /// The content id of its picture.
    picture: Option<String>,
}

#[derive(Clone, Debug)]
struct Item {
    name: String,
    places: String,
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
