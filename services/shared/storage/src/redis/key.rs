//! Keys and channels: `prefix:service:name:{tag}`.
//!
//! A key is made only here, from checked parts, so no caller's text can reach another service's keys or another slot:
//! braces are refused in every part, therefore the only hash tag Redis can find is ours, and the slot depends on
//! nothing but the tag. Keys of one script, transaction or pipeline must share the tag.

use std::fmt;

use redis::ToRedisArgs;

/// How many hash slots a cluster has.
const SLOT_COUNT: u16 = 16_384;

/// The longest part of a key, in bytes: room for two UUIDs and a word.
pub const PART_BYTES_MAX: usize = 128;

/// Why a key could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A part has no characters: an empty tag would make Redis hash the whole key.
    #[error("the {part} of a redis key is empty")]
    Empty {
        /// Which part.
        part: Part,
    },
    /// A part is longer than [`PART_BYTES_MAX`].
    #[error("the {part} of a redis key has {bytes} bytes, more than {PART_BYTES_MAX}")]
    TooLong {
        /// Which part.
        part: Part,
        /// How long it is.
        bytes: usize,
    },
    /// A part holds a brace, whitespace, a control character or anything that is not ASCII; prefix and service may hold
    /// no colon either, so that one service's keys cannot look like another's.
    #[error("the {part} of a redis key holds {character:?}")]
    Character {
        /// Which part.
        part: Part,
        /// The first character that is refused.
        character: char,
    },
}

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What keeps environments and test runs apart.
    Prefix,
    /// The service that owns the key.
    Service,
    /// What is kept there.
    Name,
    /// What decides the slot.
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

/// Where one service's keys live. Made once, at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// `prefix:service:`
    stem: String,
}

impl Keyspace {
    /// The keys of `service` under `prefix`.
    pub fn new(prefix: &str, service: &str) -> Result<Self, KeyError> {
        check(Part::Prefix, prefix)?;
        check(Part::Service, service)?;
        Ok(Self { stem: format!("{prefix}:{service}:") })
    }

    /// The key that holds `name` of whatever `tag` stands for (an event, a sector, a topic).
    pub fn key(&self, name: &str, tag: impl fmt::Display) -> Result<Key, KeyError> {
        check(Part::Name, name)?;
        let tag = tag.to_string();
        check(Part::Tag, &tag)?;
        let text = format!("{}{name}:{{{tag}}}", self.stem);
        let slot = slot_of(tag.as_bytes());
        Ok(Key { text, tag, slot })
    }
}

/// A checked key; also the name of a sharded Pub/Sub channel.
#[derive(Clone, Debug)]
pub struct Key {
    text: String,
    tag: String,
    slot: u16,
}

impl Key {
    /// The hash slot, 0 to 16,383. Depends on the tag only.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The tag, without its braces.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The whole key, as Redis sees it.
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
        // Without a colon, the first two parts end where the first two colons are: no two keyspaces overlap.
        Part::Prefix | Part::Service => plain && character != ':',
        Part::Name | Part::Tag => plain,
    }
}

/// The slot Redis gives to a tag: CRC-16/XMODEM, as the cluster specification has it.
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
