//! Enums whose values have one name each, the same in the database, in JSON, in metrics and (behind a prefix) in the contract.

use std::str::FromStr;

use strum::VariantArray;

/// An enum whose names are derived with `strum`. Every such enum of a service has these derives and this attribute, and needs no
/// implementation of the trait:
///
/// ```
/// use onsale_types::Named as _;
///
/// /// Life of an event.
/// #[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// #[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
/// #[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
/// enum EventState {
///     Draft,
///     OnSale,
/// }
///
/// assert_eq!(EventState::OnSale.name(), "ON_SALE");
/// assert_eq!(EventState::from_name("ON_SALE"), Some(EventState::OnSale));
/// assert_eq!(EventState::from_name("on_sale"), None);
/// assert_eq!(EventState::ALL, [EventState::Draft, EventState::OnSale]);
/// ```
///
/// Add `strum::Display` where the name is also printed. A name is stored: it must not change when a value is renamed, so a
/// renamed value keeps its name with `#[strum(serialize = "OLD_NAME")]`.
pub trait Named: Copy + Into<&'static str> + FromStr + VariantArray + 'static {
    /// Every value, in the order of declaration.
    const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the value.
    fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the value of this name, which is compared with its case, or `None` if there is none.
    fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

impl<T: Copy + Into<&'static str> + FromStr + VariantArray + 'static> Named for T {}

/// Defines an enum with `ALL`, `name`, `from_name` and `Display`. A macro, because many domain types have the same body and
/// differ only in their values.
///
/// ```
/// onsale_types::named! {
///     /// State of a job.
///     State {
///         /// Not started yet, waiting for a worker.
///         Waiting = "WAITING",
///         /// Finished, with or without an error.
///         Done = "DONE",
///     }
/// }
/// assert_eq!(State::from_name("DONE"), Some(State::Done));
/// assert_eq!(State::from_name("done"), None);
/// assert_eq!(State::Waiting.to_string(), "WAITING");
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$doc:meta])+ $name:ident { $($(#[$value_doc:meta])+ $value:ident = $text:literal,)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])+ $value,)+
        }

        impl $name {
            /// All values in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// Returns the stored name of the value.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            /// Returns the value with this exact name, or `None`.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.name())
            }
        }
    };
}
