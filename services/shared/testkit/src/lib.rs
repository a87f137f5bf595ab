//! What tests of every crate share: real stores for each test, an echo contract, tokens good and bad, waiting for
//! conditions. A dev-dependency only: nothing here may reach a service.

pub mod echo;
pub mod service;
pub mod stack;
pub mod tokens;

mod call;
mod wait;

pub use call::call;
pub use wait::wait_until;
