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
