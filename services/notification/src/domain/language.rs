//! Languages in which mails are written.

use onsale_types::Named as _;
use serde::{Deserialize, Serialize};

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Language {
    /// English.
    En,
    /// Croatian.
    Hr,
}

impl Language {
    /// Returns the language of a BCP 47 tag such as `hr-HR`, or `default` if the tag is empty or names another language.
    pub(crate) fn from_tag(tag: &str, default: Self) -> Self {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        Self::ALL.iter().copied().find(|it| it.tag().eq_ignore_ascii_case(primary)).unwrap_or(default)
    }

    /// Returns the BCP 47 tag.
    pub(crate) fn tag(self) -> &'static str {
        self.name()
    }

    /// Returns the text in this language.
    pub(crate) fn pick<T>(self, english: T, croatian: T) -> T {
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
    fn region_and_case_of_a_tag_are_ignored() {
        for (tag, expected) in
            [("hr", Language::Hr), ("hr-HR", Language::Hr), ("HR_hr", Language::Hr), ("en-GB", Language::En)]
        {
            assert_eq!(Language::from_tag(tag, Language::En), expected, "{tag}");
        }
    }

    #[test]
    fn unknown_tag_falls_back_to_the_default() {
        for tag in ["", "de", "hrv", "-"] {
            assert_eq!(Language::from_tag(tag, Language::Hr), Language::Hr, "{tag}");
        }
    }
}
