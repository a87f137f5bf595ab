//! Types of settings: secrets, texts that may be stored in a file, and optional values.

use std::{fmt, fs, path::PathBuf};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, Visitor, value::StringDeserializer},
};

/// A text, given directly or as the file that holds it (`{ file = "/path" }`, without its final line break).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Self)
    }
}

/// A non-empty text that is never printed: `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret that the program itself created, as tests and tools do.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret. Pass it on only to its one user, never to a log line or an error.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(TextVisitor)?;
        if text.is_empty() {
            return Err(D::Error::custom(
                "a secret is required: set it, or name its file with { file = \"/path\" }",
            ));
        }
        Ok(Self(text))
    }
}

/// Reads an optional value for `#[serde(deserialize_with = "optional")]`: an empty text means `None`.
pub fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let text = deserializer.deserialize_any(TextVisitor)?;
    if text.is_empty() {
        return Ok(None);
    }
    T::deserialize(StringDeserializer::<D::Error>::new(text)).map(Some)
}

/// Reads a text or `{ file = "/path" }`. Its errors never quote the input, which may be a secret.
struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text or { file = \"/path\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut path: Option<PathBuf> = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "file" {
                return Err(A::Error::custom("expected a text or { file = \"/path\" }"));
            }
            path = Some(map.next_value()?);
        }
        let path = path.ok_or_else(|| A::Error::custom("expected { file = \"/path\" }"))?;
        let text = fs::read_to_string(&path)
            .map_err(|error| A::Error::custom(format!("failed to read {}: {error}", path.display())))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<String, E> {
        Err(not_a_text())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<String, E> {
        Err(not_a_text())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<String, E> {
        Err(not_a_text())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<String, E> {
        Err(not_a_text())
    }
}

fn not_a_text<E: Error>() -> E {
    E::custom("expected a text: put it in quotes")
}
