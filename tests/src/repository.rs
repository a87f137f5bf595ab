//! Read-only access to the files of the repository, for the tidy checks.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names without files of ours: build output, tools and third-party contracts. `.git` is a file in a linked worktree.
const SKIPPED: [&str; 6] = [".git", "target", ".tools", ".onsale", "node_modules", "third_party"];

/// Services of the mesh; each has a directory below `services/`.
pub const SERVICES: [&str; 6] = ["queue", "inventory", "claim", "payment", "ticketing", "notification"];

/// Returns the root directory of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// One text file of the repository.
pub struct TextFile {
    /// Path relative to the root, with forward slashes.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// Returns the files below `folder` (relative to the root) whose name ends with `suffix`, sorted by path. Skips files that
/// are not UTF-8.
pub fn files(folder: &str, suffix: &str) -> Vec<TextFile> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if SKIPPED.contains(&name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
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

/// Returns the content of one file by its path relative to the root, or an empty text if it does not exist.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}
