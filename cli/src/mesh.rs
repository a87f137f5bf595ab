//! A mesh on this machine, as every command finds it: its folder, the manifest of its processes, and their readiness checks.

pub mod check;
pub mod folder;
pub mod manifest;

/// Folder of the mesh by default: in the root of the repository, ignored by git.
pub const DIRECTORY_DEFAULT: &str = ".onsale";
