//! Texts and addresses from outside, made safe for one line of a mail.

use serde::{Deserialize, Serialize};

/// Longer texts are cut, because they appear in subjects and labels.
const LINE_CHARS_MAX: usize = 300;
/// Longest address that SMTP can carry.
const ADDRESS_BYTES_MAX: usize = 254;

/// Returns `text` as one line of at most 300 characters, without control characters, characters that reverse the direction of
/// the text, and repeated spaces.
pub(crate) fn one_line(text: &str) -> String {
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

/// Email address that is safe in an SMTP envelope and in a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EmailAddress(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an email address of at most 254 characters")]
pub(crate) struct ParseEmailError;

impl EmailAddress {
    /// Parses a bare address such as `ana@example.com`. Does not check whether the domain accepts mail.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseEmailError> {
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

    /// Wraps an address that was stored. An address that the rules have since ruled out must still be shown to its organizer; the
    /// attempt to send to it fails.
    pub(crate) fn from_store(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the address without most of its local part, so that only a person who knows it recognizes it: `a***@example.com`.
    pub(crate) fn masked(&self) -> String {
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
    fn masked_address_keeps_first_letter_and_domain() {
        assert_eq!(EmailAddress::parse("ana@example.com").unwrap().masked(), "a***@example.com");
        assert_eq!(EmailAddress::parse("Žana@example.com").unwrap().masked(), "Ž***@example.com");
    }

    #[test]
    fn malformed_address_or_header_injection_is_refused() {
        let long = format!("{}@example.com", "a".repeat(250));
        for text in ["", "ana", "@b", "a@", "a b@c", "a@b\r\nBcc: x@y", "a@b,c@d", "<a@b>", "a@b@c", &long] {
            assert_eq!(EmailAddress::parse(text), Err(ParseEmailError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn one_line_has_no_control_characters_and_is_idempotent(text in any::<String>()) {
            let line = one_line(&text);
            prop_assert!(!line.chars().any(|it| it.is_control() || turns_direction(it)));
            prop_assert!(line.chars().count() <= LINE_CHARS_MAX);
            prop_assert_eq!(one_line(&line), line.trim_end());
        }
    }
}
