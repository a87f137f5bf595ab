//! What a queue is and what may happen in it: types, states, rules. Nothing here fetches, waits or reads a clock.

pub mod admission;
pub mod bucket;
pub mod entry;
pub mod estimate;
pub mod line;
pub mod pace;
pub mod policy;
pub mod queue;
pub mod refusal;
pub mod watching;

/// An enum whose values have the names that the contract, the store and the errors' metadata use.
macro_rules! named {
    ($(#[$doc:meta])+ $name:ident { $($(#[$value_doc:meta])+ $value:ident = $text:literal,)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])+ $value,)+
        }

        impl $name {
            /// Its name in the contract, without the enum's prefix.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            /// The value of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    };
}
use named;
