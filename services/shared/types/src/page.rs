//! Pages of a list: how many rows, and where the next page begins.
//!
//! A token is opaque to the caller and belongs to one query: a token of another list, or of the same list with another
//! filter, is refused instead of silently skipping rows. It is no secret and grants nothing: whoever makes one up can
//! at most begin their own list elsewhere, so every page must filter by what its caller may see.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

/// The form of a token; a later form gets another number, and old tokens are then refused as malformed.
const VERSION: u8 = 1;

/// Longer texts are refused before they are decoded.
const TOKEN_LENGTH_MAX: usize = 1_024;

/// Separates our checksums from every other use of UUIDs of version 5.
const CHECKSUM_NAMESPACE: Uuid = Uuid::from_u128(0x7d1f_3a52_90c4_5b0e_8e61_2f0b_6c9d_4a17);

/// How many rows a page of a list may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Taken when the caller does not say.
    pub default: u32,
    /// Taken when the caller asks for more.
    pub max: u32,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { default: 50, max: 200 }
    }
}

/// How many rows one page has: 1 up to the list's maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u32);

/// The caller asked for a page of fewer than zero rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page has no negative size")]
pub struct PageSizeError;

impl PageSize {
    /// From what a caller asked for: 0 means the default, more than the maximum means the maximum (AIP-158).
    pub fn from_request(requested: i32, limits: PageLimits) -> Result<Self, PageSizeError> {
        let requested = u32::try_from(requested).map_err(|_negative| PageSizeError)?;
        let rows = if requested == 0 { limits.default } else { requested };
        Ok(Self(rows.min(limits.max).max(1)))
    }

    /// The number of rows.
    #[must_use]
    pub const fn rows(self) -> u32 {
        self.0
    }

    /// One row more than the page: what a store asks for, to learn whether there is a next page.
    #[must_use]
    pub const fn rows_and_one(self) -> u32 {
        self.0.saturating_add(1)
    }
}

/// What a token belongs to: a list's name and the filters it was asked with. The page size is no part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery(Vec<u8>);

impl PageQuery {
    /// The list `name` without any filter.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Vec::new()).with(name, "")
    }

    /// The same with one more filter. Their order counts: build it in one place.
    #[must_use]
    pub fn with(mut self, filter: &str, value: impl AsRef<[u8]>) -> Self {
        // Each part with its length before it: without it "ab" + "c" would be the same as "a" + "bc".
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

/// Where a page begins: the key of the last row of the page before it, in whatever bytes the store writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken(Vec<u8>);

/// Why a text is not a token of this query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePageTokenError {
    /// Not a token at all, or one of a form that is no longer read.
    #[error("the page token is malformed")]
    Malformed,
    /// A token that was changed, or that belongs to another list or other filters.
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
    fn a_page_size_is_defaulted_capped_and_never_negative() {
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
    fn an_empty_token_is_the_first_page() {
        assert_eq!(PageToken::parse("", &PageQuery::new("tickets")), Ok(None));
    }

    #[test]
    fn a_token_of_another_list_or_filter_is_refused() {
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
    fn a_text_that_is_no_token_is_refused() {
        let query = PageQuery::new("tickets");
        for text in ["!", "AQ", "AQ==", &"A".repeat(TOKEN_LENGTH_MAX + 1), "Ag0000000000000000000000000000"] {
            assert_eq!(PageToken::parse(text, &query), Err(ParsePageTokenError::Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_token_is_read_back(name: String, value: Vec<u8>, position in prop::collection::vec(any::<u8>(), 0..64)) {
            let query = PageQuery::new(&name).with("filter", &value);
            let token = PageToken::after(position);
            prop_assert_eq!(PageToken::parse(&token.encode(&query), &query), Ok(Some(token)));
        }

        #[test]
        fn a_changed_token_is_refused(
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
        fn no_text_makes_parse_panic(text: String) {
            let _ = PageToken::parse(&text, &PageQuery::new("tickets"));
        }
    }
}
