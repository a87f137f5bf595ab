//! Machine checks of the repository's own rules (STYLE), which a compiler does not know. Each failure names all offenders and
//! the rule. `cargo test --test tidy -- figures --nocapture` prints all measured figures.

#![cfg(test)]

mod bounds;
mod comments;
mod layout;
mod modules;
mod rpc_index;
mod surface;
mod walks;

use onsale_tests::repository::{self, SERVICES, TextFile};

fn rust_files() -> Vec<TextFile> {
    repository::files("", ".rs")
}

/// Returns the Rust files whose path neither contains `/tests/` nor ends in `tests.rs`: the files in which doc comments and
/// public declarations are counted.
fn production_files(folder: &str) -> Vec<TextFile> {
    let mut files = repository::files(folder, ".rs");
    files.retain(|file| !file.path.contains("/tests/") && !file.path.ends_with("tests.rs"));
    files
}

fn assert_none(offenders: &[String], rule: &str) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

/// Divides and rounds to the nearest integer; a divisor of 0 counts as 1.
fn rounded(dividend: usize, divisor: usize) -> usize {
    let divisor = divisor.max(1);
    (dividend + divisor / 2) / divisor
}

#[test]
fn figures() {
    println!("comments");
    for figure in comments::figures() {
        println!("  {figure}");
    }
    println!("public declarations per 1,000 code lines (without struct fields)");
    for service in SERVICES {
        println!("  {service:<13} {}", surface::density_of(service));
    }
    println!("forbidden references between the modules of a service");
    for service in SERVICES {
        let violations = modules::violations(service);
        println!("  {service:<13} {}", violations.len());
        violations.iter().for_each(|violation| println!("    {violation}"));
    }
    println!("files of app, domain, store and engine that name onsale_proto or prost");
    println!("  {}", modules::protobuf_files().len());
    println!("walks");
    for walk in walks::measured() {
        println!("  {walk}");
    }
}
