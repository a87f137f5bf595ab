//! Keys and channels: `prefix:service:name:{tag}`.
//!
//! Keys are built only here, from checked parts, so no input can reach another service's keys or another slot: every
//! part refuses braces, so the key's only hash tag is `tag`, which alone determines the slot. Keys of one script,
//! transaction or pipeline must share the tag.

use std::fmt;

use redis::ToRedisArgs;

/// Number of hash slots in a cluster.
const SLOT_COUNT: u16 = 16_384;

/// Maximum length of a key's part in bytes: room for two UUIDs and a word.
pub const PART_BYTES_MAX: usize = 128;

/// A part that is not valid in a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The part is empty. An empty tag would make Redis hash the whole key.
    #[error("the {part} of a redis key is empty")]
    Empty {
        /// Part of the key.
        part: Part,
    },
    /// The part is longer than [`PART_BYTES_MAX`].
    #[error("the {part} of a redis key has {bytes} bytes, more than {PART_BYTES_MAX}")]
    TooLong {
        /// Part of the key.
        part: Part,
        /// Length of the part.
        bytes: usize,
    },
    /// The part contains a brace, whitespace, a control character or a non-ASCII character. Prefix and service must not
    /// contain a colon either, so that keys of different services cannot be equal.
    #[error("the {part} of a redis key contains the invalid character {character:?}")]
    Character {
        /// Part of the key.
        part: Part,
        /// First invalid character of the part.
        character: char,
    },
}

/// Named part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Separates environments and test runs.
    Prefix,
    /// Service that owns the key.
    Service,
    /// Kind of the stored value.
    Name,
    /// Text that determines the slot.
    Tag,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Prefix => "prefix",
            Self::Service => "service",
            Self::Name => "name",
            Self::Tag => "tag",
        })
    }
}

/// Prefix of all keys of one service. Created once, at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Text `prefix:service:`, with the final colon.
    stem: String,
}

impl Keyspace {
    /// Creates the keyspace of `service` under `prefix`.
    pub fn new(prefix: &str, service: &str) -> Result<Self, KeyError> {
        check(Part::Prefix, prefix)?;
        check(Part::Service, service)?;
        Ok(Self { stem: format!("{prefix}:{service}:") })
    }

    /// Returns the key of `name` for the object `tag` (an event, a sector, a topic).
    pub fn key(&self, name: &str, tag: impl fmt::Display) -> Result<Key, KeyError> {
        check(Part::Name, name)?;
        let tag = tag.to_string();
        check(Part::Tag, &tag)?;
        let text = format!("{}{name}:{{{tag}}}", self.stem);
        let slot = slot_of(tag.as_bytes());
        Ok(Key { text, tag, slot })
    }
}

/// Valid key or name of a sharded Pub/Sub channel.
#[derive(Clone, Debug)]
pub struct Key {
    text: String,
    tag: String,
    slot: u16,
}

impl Key {
    /// Returns the hash slot, 0 to 16,383. It depends on the tag only.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Returns the tag without its braces.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the full key as Redis sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl ToRedisArgs for Key {
    fn write_redis_args<W: ?Sized + redis::RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.text.as_bytes());
    }
}

fn check(part: Part, text: &str) -> Result<(), KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty { part });
    }
    if text.len() > PART_BYTES_MAX {
        return Err(KeyError::TooLong { part, bytes: text.len() });
    }
    match text.chars().find(|character| !is_allowed(part, *character)) {
        Some(character) => Err(KeyError::Character { part, character }),
        None => Ok(()),
    }
}

fn is_allowed(part: Part, character: char) -> bool {
    let plain = character.is_ascii_graphic() && character != '{' && character != '}';
    match part {
        // Without colons in the first two parts, different keyspaces cannot overlap.
        Part::Prefix | Part::Service => plain && character != ':',
        Part::Name | Part::Tag => plain,
    }
}

/// Returns the slot of a tag: CRC-16/XMODEM, as the cluster specification defines it.
fn slot_of(tag: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    let mut crc: u16 = 0;
    for byte in tag {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
        }
    }
    crc % SLOT_COUNT
}
