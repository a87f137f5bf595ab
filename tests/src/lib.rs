//! Helpers for the tests of the whole repository: its files, its dependencies and the settings that services require.

pub mod metadata;
pub mod repository;
pub mod settings;
