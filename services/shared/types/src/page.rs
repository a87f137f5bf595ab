//! Pages of a list: size limits and page tokens.
//!
//! A page token is opaque to the caller and belongs to one query: a token of another list, or of the same list with other
//! filters, is refused instead of silently skipping rows. A token is not a secret and grants nothing. A forged token only
//! moves the start of the caller's own list, so every page must filter by what its caller may see.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

/// Format version of a token. A new format gets another number, after which old tokens are refused as malformed.
const VERSION: u8 = 1;

/// Longest accepted token in characters; longer texts are refused before they are decoded.
const TOKEN_LENGTH_MAX: usize = 1_024;

/// Namespace that separates our checksums from every other use of version 5 UUIDs.
const CHECKSUM_NAMESPACE: Uuid = Uuid::from_u128(0x7d1f_3a52_90c4_5b0e_8e61_2f0b_6c9d_4a17);

/// Default and maximum number of rows on a page of one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Number of rows if the caller asks for 0.
    pub default: u32,
    /// Number of rows if the caller asks for more.
    pub max: u32,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { default: 50, max: 200 }
    }
}

/// Number of rows of one page, from 1 to the maximum of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u32);

/// The caller asked for a page of fewer than zero rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page size must not be negative")]
pub struct PageSizeError;

impl PageSize {
    /// Converts the requested size: 0 becomes the default, and more than the maximum becomes the maximum (AIP-158).
    pub fn from_request(requested: i32, limits: PageLimits) -> Result<Self, PageSizeError> {
        let requested = u32::try_from(requested).map_err(|_negative| PageSizeError)?;
        let rows = if requested == 0 { limits.default } else { requested };
        Ok(Self(rows.min(limits.max).max(1)))
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn rows(self) -> u32 {
        self.0
    }

    /// Returns one row more than the page: a store reads that many to see if there is a next page.
    #[must_use]
    pub const fn rows_and_one(self) -> u32 {
        self.0.saturating_add(1)
    }
}

/// Identity of a list query: the name of the list and its filters, but not the page size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery(Vec<u8>);

impl PageQuery {
    /// Creates a query of the list `name` without filters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Vec::new()).with(name, "")
    }

    /// Adds a filter. The order of filters matters, so build each query in one place.
    #[must_use]
    pub fn with(mut self, filter: &str, value: impl AsRef<[u8]>) -> Self {
        // Write the length before each part: otherwise "ab" + "c" would equal "a" + "bc".
        for part in [filter.as_bytes(), value.as_ref()] {
            self.0.extend_from_slice(&length(part).to_be_bytes());
            self.0.extend_from_slice(part);
        }
        self
    }

    fn checksum(&self, position: &[u8]) -> Uuid {
        let mut text = length(&self.0).to_be_bytes().to_vec();
        text.extend_from_slice(&self.0);
        text.extend_from_slice(position);
        Uuid::new_v5(&CHECKSUM_NAMESPACE, &text)
    }
}

/// Start of a page: the key of the last row of the previous page, in an encoding of the store's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken(Vec<u8>);

/// Reason for refusing a page token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePageTokenError {
    /// The text is not a token, or has another format version.
    #[error("the page token is malformed")]
    Malformed,
    /// The token was altered, or belongs to another list or other filters.
    #[error("the page token belongs to another query")]
    OtherQuery,
}

impl PageToken {
    /// The page after the row at `position`.
    #[must_use]
    pub fn after(position: impl Into<Vec<u8>>) -> Self {
        Self(position.into())
    }

    /// The position, as the store wrote it.
    #[must_use]
    pub fn position(&self) -> &[u8] {
        &self.0
    }

    /// The text for `next_page_token`.
    #[must_use]
    pub fn encode(&self, query: &PageQuery) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(query.checksum(&self.0).as_bytes());
        bytes.extend_from_slice(&self.0);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a caller's `page_token`; an empty one is the first page.
    pub fn parse(text: &str, query: &PageQuery) -> Result<Option<Self>, ParsePageTokenError> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > TOKEN_LENGTH_MAX {
            return Err(ParsePageTokenError::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_malformed| ParsePageTokenError::Malformed)?;
        let (version, rest) = bytes.split_first().ok_or(ParsePageTokenError::Malformed)?;
        let (checksum, position) = rest.split_first_chunk::<16>().ok_or(ParsePageTokenError::Malformed)?;
        if *version != VERSION {
            return Err(ParsePageTokenError::Malformed);
        }
        if query.checksum(position).as_bytes() != checksum {
            return Err(ParsePageTokenError::OtherQuery);
        }
        Ok(Some(Self(position.to_vec())))
    }
}

fn length(part: &[u8]) -> u64 {
    u64::try_from(part.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn page_size_is_defaulted_and_capped() {
        let limits = PageLimits::default();
        let rows = |requested| PageSize::from_request(requested, limits).map(PageSize::rows);
        assert_eq!(rows(0), Ok(50));
        assert_eq!(rows(1), Ok(1));
        assert_eq!(rows(200), Ok(200));
        assert_eq!(rows(201), Ok(200));
        assert_eq!(rows(i32::MAX), Ok(200));
        assert_eq!(rows(-1), Err(PageSizeError));
        assert_eq!(PageSize::from_request(9, limits).unwrap().rows_and_one(), 10);
        assert_eq!(PageSize::from_request(0, PageLimits { default: 0, max: 0 }).unwrap().rows(), 1);
    }

    #[test]
    fn empty_token_means_the_first_page() {
        assert_eq!(PageToken::parse("", &PageQuery::new("tickets")), Ok(None));
    }

    #[test]
    fn token_of_another_list_or_filter_is_refused() {
        let query = PageQuery::new("tickets").with("customer", "a").with("event", "bc");
        let text = PageToken::after(*b"position").encode(&query);
        for other in [
            PageQuery::new("tickets"),
            PageQuery::new("claims").with("customer", "a").with("event", "bc"),
            PageQuery::new("tickets").with("customer", "b").with("event", "bc"),
            PageQuery::new("tickets").with("customer", "ab").with("event", "c"),
            PageQuery::new("tickets").with("event", "bc").with("customer", "a"),
        ] {
            assert_eq!(PageToken::parse(&text, &other), Err(ParsePageTokenError::OtherQuery));
        }
    }

    #[test]
    fn malformed_token_is_refused() {
        let query = PageQuery::new("tickets");
        for text in ["!", "AQ", "AQ==", &"A".repeat(TOKEN_LENGTH_MAX + 1), "Ag0000000000000000000000000000"] {
            assert_eq!(PageToken::parse(text, &query), Err(ParsePageTokenError::Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn encoded_token_parses_to_the_same_token(name: String, value: Vec<u8>, position in prop::collection::vec(any::<u8>(), 0..64)) {
            let query = PageQuery::new(&name).with("filter", &value);
            let token = PageToken::after(position);
            prop_assert_eq!(PageToken::parse(&token.encode(&query), &query), Ok(Some(token)));
        }

        #[test]
        fn altered_token_is_refused(
            position in prop::collection::vec(any::<u8>(), 1..64),
            at: prop::sample::Index,
            bit in 0_u8..8,
        ) {
            let query = PageQuery::new("tickets");
            let mut bytes = URL_SAFE_NO_PAD.decode(PageToken::after(position).encode(&query)).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(PageToken::parse(&URL_SAFE_NO_PAD.encode(bytes), &query).is_err());
        }

        #[test]
        fn parse_never_panics(text: String) {
            let _ = PageToken::parse(&text, &PageQuery::new("tickets"));
        }
    }
}
