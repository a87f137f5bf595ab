//! Enums whose values have one name each, the same in the database, in metadata and (behind a prefix) in the contract.

/// Makes such an enum, with `ALL`, `name`, `from_name` and `Display`. A macro, because many types of the domains have the same
/// body and differ only in their values.
///
/// ```
/// onsale_types::named! {
///     /// How it is.
///     State {
///         /// Not yet.
///         Waiting = "WAITING",
///         /// At last.
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
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            /// The value with this name.
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
