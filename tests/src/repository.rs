//! The repository as files: what the tidy checks read. It never writes.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold nothing of ours: build output, tools, other people's contracts.
const SKIPPED: [&str; 6] = [".git", "target", ".tools", ".onsale", "node_modules", "third_party"];

/// The services of the mesh, each a folder below `services/`.
pub const SERVICES: [&str; 6] = ["queue", "inventory", "claim", "payment", "ticketing", "notification"];

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// One text file of ours.
pub struct TextFile {
    /// Its path below the root, with forward slashes.
    pub path: String,
    /// Its whole text.
    pub text: String,
}

/// Every file of ours below `folder` (relative to the root) that ends with `suffix`, sorted by path.
/// A file that is not text is passed over.
pub fn files(folder: &str, suffix: &str) -> Vec<TextFile> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !SKIPPED.contains(&name) {
                    folders.push(path);
                }
            } else if name.ends_with(suffix)
                && let Ok(text) = fs::read_to_string(&path)
                && let Ok(relative) = path.strip_prefix(&root)
            {
                found.push(TextFile { path: relative.display().to_string(), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

/// The text of one file, given its path below the root; empty when it does not exist.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}
