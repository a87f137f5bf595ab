//! Enums with one text name per value: the same name in the database, in error metadata and, after a prefix, in the contract.

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
