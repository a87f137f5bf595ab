//! Support for the tests of every crate: real stores for each test, an echo contract, valid and broken tokens, and waiting
//! for conditions. Services may depend on this crate for their tests only.

pub mod echo;
pub mod service;
pub mod stack;
pub mod tokens;

mod call;
mod wait;

pub use call::call;
pub use wait::wait_until;
