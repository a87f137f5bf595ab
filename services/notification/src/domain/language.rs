//! The languages mails are written in.

use serde::{Deserialize, Serialize};

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English.
    En,
    /// Croatian.
    Hr,
}

impl Language {
    /// From a BCP 47 tag such as `hr-HR`; `default` for any other language, and for none.
    #[must_use]
    pub fn of_tag(tag: &str, default: Self) -> Self {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        [Self::En, Self::Hr].into_iter().find(|it| it.tag().eq_ignore_ascii_case(primary)).unwrap_or(default)
    }

    /// Its BCP 47 tag.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Hr => "hr",
        }
    }

    /// The one of two texts that is in this language.
    #[must_use]
    pub fn pick<T>(self, english: T, croatian: T) -> T {
        match self {
            Self::En => english,
            Self::Hr => croatian,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_falls_back_to_the_default() {
        for (tag, expected) in
            [("hr", Language::Hr), ("hr-HR", Language::Hr), ("HR_hr", Language::Hr), ("en-GB", Language::En)]
        {
            assert_eq!(Language::of_tag(tag, Language::En), expected, "{tag}");
        }
        for tag in ["", "de", "hrv", "-"] {
            assert_eq!(Language::of_tag(tag, Language::Hr), Language::Hr, "{tag}");
        }
    }
}
