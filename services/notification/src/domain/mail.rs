//! A mail: what a message says, written out in a language, as HTML and as plain text. Everything that comes from elsewhere
//! is escaped in the HTML and stands on one line in both.

mod compose;

use askama::Template as _;

use super::{content::Content, language::Language, text::one_line};

/// A subject is cut here: mail programs show less.
const SUBJECT_CHARS_MAX: usize = 150;

/// A mail without its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// On one line.
    pub subject: String,
    /// Plain text.
    pub text: String,
    /// HTML.
    pub html: String,
}

impl Mail {
    /// Writes `content` out in `language`, with a link to `web_url` unless that is empty.
    pub fn write(content: &Content, language: Language, web_url: &str) -> Result<Self, askama::Error> {
        let document = compose::document(content, language, web_url);
        let subject = one_line(&document.subject).chars().take(SUBJECT_CHARS_MAX).collect();
        Ok(Self { subject, text: Text(&document).render()?, html: Html(&document).render()? })
    }
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
    tickets: Vec<Line>,
    /// The last paragraph.
    closing: &'static str,
}

/// A label and what it labels.
#[derive(Clone, Debug)]
struct Line {
    label: String,
    value: String,
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
