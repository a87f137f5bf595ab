//! Texts and addresses from elsewhere, made safe to stand in a line of a mail.

use serde::{Deserialize, Serialize};

/// A longer name is cut: it stands in subjects.
const LINE_CHARS_MAX: usize = 300;
/// What SMTP can carry.
const ADDRESS_BYTES_MAX: usize = 254;

/// `text` as one line: no line ends, no other control characters, no characters that turn the direction of the text
/// around, no runs of spaces, and not too long.
#[must_use]
pub fn one_line(text: &str) -> String {
    let spaced: String = text.chars().filter(|it| !turns_direction(*it)).map(blank_if_control).collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    words.join(" ").chars().take(LINE_CHARS_MAX).collect()
}

fn turns_direction(character: char) -> bool {
    matches!(character, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn blank_if_control(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// An email address that can stand in an envelope and in a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EmailAddress(String);

/// The text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an email address of at most 254 characters")]
pub struct ParseEmailError;

impl EmailAddress {
    /// Reads an address such as `ana@example.com`, without a name. Whether the domain takes mail is not checked.
    pub fn parse(text: &str) -> Result<Self, ParseEmailError> {
        let (local, domain) = text.rsplit_once('@').ok_or(ParseEmailError)?;
        let is_odd = |it: char| it.is_control() || it.is_whitespace() || "<>()[],;:\\\"@".contains(it);
        if local.is_empty() || domain.is_empty() || text.len() > ADDRESS_BYTES_MAX {
            return Err(ParseEmailError);
        }
        if local.chars().chain(domain.chars()).any(is_odd) {
            return Err(ParseEmailError);
        }
        Ok(Self(text.to_owned()))
    }

    /// An address from our own store, where only those go that were read: one that the rules have since ruled out must
    /// still be shown and given up, and is refused when a mail is made for it.
    #[must_use]
    pub fn from_store(text: String) -> Self {
        Self(text)
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Shortened so that a person is recognized only by who knows them: `a***@example.com`.
    #[must_use]
    pub fn masked(&self) -> String {
        let (local, domain) = self.0.rsplit_once('@').unwrap_or(("", ""));
        let first: String = local.chars().take(1).collect();
        format!("{first}***@{domain}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_has_a_name_a_domain_and_nothing_that_ends_a_header() {
        assert_eq!(EmailAddress::parse("ana@example.com").unwrap().masked(), "a***@example.com");
        assert_eq!(EmailAddress::parse("Žana@example.com").unwrap().masked(), "Ž***@example.com");
        let long = format!("{}@example.com", "a".repeat(250));
        for text in ["", "ana", "@b", "a@", "a b@c", "a@b\r\nBcc: x@y", "a@b,c@d", "<a@b>", "a@b@c", &long] {
            assert_eq!(EmailAddress::parse(text), Err(ParseEmailError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn one_line_has_no_line_end_and_stays_as_it_is(text in any::<String>()) {
            let line = one_line(&text);
            prop_assert!(!line.chars().any(|it| it.is_control() || turns_direction(it)));
            prop_assert!(line.chars().count() <= LINE_CHARS_MAX);
            prop_assert_eq!(one_line(&line), line.trim_end());
        }
    }
}
