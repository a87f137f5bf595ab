//! Property tests of keys: any parts give a typed error or a key in the slot of its tag.

use onsale_storage::redis::{KeyError, Keyspace, PART_BYTES_MAX, Part};
use proptest::prelude::*;

/// Mostly allowed text, with characters that would inject a tag, a second key or a second command.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9:_-]{1,12}",
        2 => "[a-z{}: \r\n\t\0é*]{0,12}",
        1 => any::<String>(),
        1 => "[a-z]{120,140}",
    ]
}

/// Returns the text that Redis hashes: the content of the first braces, if not empty.
fn hashed(key: &str) -> &str {
    let Some((_, after)) = key.split_once('{') else { return key };
    match after.split_once('}') {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    }
}

proptest! {
    #[test]
    fn parts_give_a_typed_error_or_a_key_in_the_tags_slot(
        prefix in part(), service in part(), name in part(), tag in part(),
    ) {
        let made = Keyspace::new(&prefix, &service).and_then(|keys| keys.key(&name, &tag));
        match made {
            Ok(key) => {
                prop_assert_eq!(hashed(key.as_str()), tag.as_str());
                prop_assert_eq!(key.tag(), tag.as_str());
                prop_assert!(key.slot() < 16_384);
                prop_assert_eq!(key.as_str().matches(['{', '}']).count(), 2);
                prop_assert!(key.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(key.as_str().len() <= 4 * PART_BYTES_MAX + 5);
            }
            Err(error) => {
                let (part, text) = match error {
                    KeyError::Empty { part } => (part, ""),
                    KeyError::TooLong { part, .. } | KeyError::Character { part, .. } => (part, match part {
                        Part::Prefix => prefix.as_str(),
                        Part::Service => service.as_str(),
                        Part::Name => name.as_str(),
                        Part::Tag => tag.as_str(),
                    }),
                };
                let colon_refused = matches!(part, Part::Prefix | Part::Service) && text.contains(':');
                let plain = !text.is_empty()
                    && text.len() <= PART_BYTES_MAX
                    && text.chars().all(|it| it.is_ascii_graphic() && it != '{' && it != '}');
                prop_assert!(!plain || colon_refused, "{:?} was refused as {}", text, part);
            }
        }
    }

    #[test]
    fn slot_depends_on_the_tag_alone(first in "[a-z]{1,9}", second in "[a-z]{1,9}", tag in "[a-z0-9:-]{1,20}") {
        let one = Keyspace::new(&first, "queue").unwrap().key(&second, &tag).unwrap();
        let other = Keyspace::new(&second, "claim").unwrap().key(&first, &tag).unwrap();
        prop_assert_eq!(one.slot(), other.slot());
    }

    #[test]
    fn different_parts_give_different_keys(one in parts(), other in parts()) {
        let key = |[prefix, service, name, tag]: &[String; 4]| {
            Keyspace::new(prefix, service).unwrap().key(name, tag).unwrap()
        };
        prop_assert_eq!(one == other, key(&one) == key(&other));
    }
}

/// Four allowed parts of few characters, so that different ones often look alike when joined.
fn parts() -> impl Strategy<Value = [String; 4]> {
    ("[a-b]{1,2}", "[a-b]{1,2}", "[a-b:]{1,3}", "[a-b:]{1,3}")
        .prop_map(|(prefix, service, name, tag)| [prefix, service, name, tag])
}

#[test]
fn slot_equals_the_one_of_redis() {
    let keys = Keyspace::new("test", "storage").unwrap();
    // Values from the cluster specification and `CLUSTER KEYSLOT`.
    for (tag, slot) in [("123456789", 12_739), ("foo", 12_182), ("bar", 5_061), ("user1000", 3_443)] {
        assert_eq!(keys.key("name", tag).unwrap().slot(), slot, "{tag}");
    }
}
