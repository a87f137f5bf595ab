//! What the tests of the whole repository share: where it lies, what is in it, what it depends on.

pub mod metadata;
pub mod repository;
pub mod settings;
