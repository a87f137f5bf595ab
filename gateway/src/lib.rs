//! The Rust half of the front door. What it may let through is read from the contracts; it never decides by name.

pub mod public;
