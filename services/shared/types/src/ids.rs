//! Typed ids: a UUID with a type of its own for each kind of object, so that a customer id cannot be passed as an event id.

/// Reason for refusing a text as an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    /// The text is not in the hyphenated form of 36 characters. Other spellings of the same UUID are refused, except for
    /// upper-case letters.
    #[error("{id} is not a UUID in hyphenated form")]
    Form {
        /// Type name of the expected id, such as `EventId`.
        id: &'static str,
    },
    /// The text is the nil UUID, which usually comes from a field that was never set. No object has it.
    #[error("{id} is the nil UUID")]
    Nil {
        /// Type name of the expected id, such as `EventId`.
        id: &'static str,
    },
}

/// A typed id, for code that handles all of them alike, such as the readers of rows.
pub trait Id: Copy {
    /// Takes a UUID from our own store, as the function of the type itself does.
    fn from_uuid(uuid: uuid::Uuid) -> Self;

    /// Returns the UUID.
    fn as_uuid(&self) -> uuid::Uuid;
}

/// Defines one typed id. A macro, because more than ten types have the same body and differ only in name.
macro_rules! typed_id {
    ($(#[$doc:meta])+ $name:ident) => {
        $(#[$doc])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// Generates a new UUID of version 7: later ids sort after earlier ones, which keeps database indexes dense.
            #[must_use]
            pub fn generate() -> Self {
                Self(uuid::Uuid::now_v7())
            }

            /// Parses the hyphenated form, letters in either case; refuses every other form and the nil UUID.
            pub fn parse(text: &str) -> Result<Self, $crate::ids::ParseIdError> {
                let form = $crate::ids::ParseIdError::Form { id: stringify!($name) };
                // The other forms that `Uuid` parses (simple, braced, URN) all have another length.
                if text.len() != uuid::fmt::Hyphenated::LENGTH {
                    return Err(form);
                }
                let uuid = uuid::Uuid::try_parse(text).map_err(|_malformed| form)?;
                if uuid.is_nil() {
                    return Err($crate::ids::ParseIdError::Nil { id: stringify!($name) });
                }
                Ok(Self(uuid))
            }

            /// Wraps a UUID read from our own store without checks. Use `parse` for input from outside.
            #[must_use]
            pub const fn from_uuid(uuid: uuid::Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID, for a store or a wire format.
            #[must_use]
            pub const fn as_uuid(&self) -> uuid::Uuid {
                self.0
            }
        }

        impl $crate::ids::Id for $name {
            fn from_uuid(uuid: uuid::Uuid) -> Self {
                Self(uuid)
            }

            fn as_uuid(&self) -> uuid::Uuid {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0.hyphenated(), formatter)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self.0.hyphenated())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::ids::ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use typed_id;

typed_id! {
    /// A match or show that goes on sale.
    EventId
}
typed_id! {
    /// Part of a venue with one price.
    SectorId
}
typed_id! {
    /// Units reserved for a group, outside the public sale.
    QuotaId
}
typed_id! {
    /// Permission for one person to buy from a quota.
    InvitationId
}
typed_id! {
    /// A person who joins queues and buys.
    CustomerId
}
typed_id! {
    /// Account that creates and manages events.
    OrganizerId
}
typed_id! {
    /// Entry of one customer in the queue of an event.
    EntryId
}
typed_id! {
    /// Units set aside for one claim.
    HoldId
}
typed_id! {
    /// A customer's right to buy held units.
    ClaimId
}
typed_id! {
    /// Payment of one claim, from its creation to its final state.
    PaymentId
}
typed_id! {
    /// One run that generates the tickets of an event.
    GenerationId
}
typed_id! {
    /// Ticket for one unit of an event.
    TicketId
}
typed_id! {
    /// Delivery job of one notification.
    JobId
}
typed_id! {
    /// A customer's device that receives push notifications.
    DeviceId
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const FORM: ParseIdError = ParseIdError::Form { id: "EventId" };

    #[test]
    fn printed_id_parses_to_the_same_id() {
        let id = EventId::generate();
        assert_eq!(EventId::parse(&id.to_string()), Ok(id));
        assert_eq!(EventId::parse(&id.to_string().to_uppercase()), Ok(id));
        assert_eq!(EventId::from_uuid(id.as_uuid()), id);
        assert_eq!(format!("{id:?}"), format!("EventId({id})"));
    }

    #[test]
    fn forms_other_than_hyphenated_are_refused() {
        let uuid = EventId::generate().as_uuid();
        for text in [
            uuid.simple().to_string(),
            uuid.braced().to_string(),
            uuid.urn().to_string(),
            format!(" {uuid}"),
            format!("{uuid} "),
            String::new(),
            "01890000-0000-7000-8000-00000000000g".to_owned(),
            "018900000-000-7000-8000-000000000000".to_owned(),
            "é1890000-0000-7000-8000-0000000000".to_owned(),
        ] {
            assert_eq!(EventId::parse(&text), Err(FORM), "{text:?}");
        }
    }

    #[test]
    fn nil_uuid_is_refused() {
        assert_eq!(EventId::parse(&Uuid::nil().to_string()), Err(ParseIdError::Nil { id: "EventId" }));
    }

    #[test]
    fn generated_ids_sort_in_order_of_creation() {
        let ids: Vec<_> = std::iter::repeat_with(EventId::generate).take(1_000).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn json_form_is_a_string_that_is_validated_when_read() {
        let id = HoldId::generate();
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<HoldId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<HoldId>(&format!("\"{}\"", Uuid::nil())).is_err());
        assert!(serde_json::from_str::<HoldId>("7").is_err());
    }

    proptest! {
        #[test]
        fn parse_never_panics(text: String) {
            let _ = EventId::parse(&text);
        }

        #[test]
        fn every_uuid_except_nil_is_accepted(bits in 1_u128..) {
            let uuid = Uuid::from_u128(bits);
            prop_assert_eq!(EventId::parse(&uuid.to_string()), Ok(EventId::from_uuid(uuid)));
        }
    }
}
