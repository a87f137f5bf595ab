//! Embeds `/migrations` as one table of files, so that every binary carries the schemas.

use std::error::Error;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?;
    let root = Path::new(&manifest).join("../../../migrations").canonicalize()?;
    println!("cargo:rerun-if-changed={}", root.display());
    let mut table = String::from("pub(super) static FILES: &[File] = &[\n");
    let mut hasher = DefaultHasher::new();
    for schema in names(&root)? {
        let directory = root.join(&schema);
        if !directory.is_dir() {
            continue;
        }
        println!("cargo:rerun-if-changed={}", directory.display());
        for file in names(&directory)? {
            let Some(name) = file.strip_suffix(".sql").filter(|name| is_migration(name)) else {
                return Err(
                    format!("migrations/{schema}/{file} must be named V0001__what_it_does.sql").into()
                );
            };
            let path = directory.join(&file);
            (&schema, name, fs::read(&path)?).hash(&mut hasher);
            writeln!(
                table,
                "File {{ directory: {schema:?}, name: {name:?}, sql: include_str!({path:?}) }},"
            )?;
        }
    }
    writeln!(table, "];\npub(super) const DIGEST: &str = \"{:016x}\";", hasher.finish())?;
    let output = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    fs::write(Path::new(&output).join("migrations.rs"), table)?;
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().into_string().map_err(|name| format!("{name:?} is no text"))?);
    }
    // Sorted because the order of a directory listing depends on the file system.
    names.sort();
    Ok(names)
}

fn is_migration(name: &str) -> bool {
    let Some((version, words)) = name.strip_prefix('V').and_then(|rest| rest.split_once("__")) else {
        return false;
    };
    version.len() == 4
        && version.bytes().all(|it| it.is_ascii_digit())
        && !words.is_empty()
        && words.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_')
}
