//! The shape of the repository, checked by machine: what STYLE asks for and a compiler does not see.
//! Each check names every offender and what to do.

#![cfg(test)]

use onsale_tests::repository::{self, SERVICES, TextFile};

const LINES_MAX: usize = 500;

/// What every service has, so that knowing one is knowing six.
const SERVICE_FILES: [&str; 15] = [
    "Cargo.toml",
    "README.md",
    "config.default.toml",
    "src/main.rs",
    "src/lib.rs",
    "src/config.rs",
    "src/grpc.rs",
    "src/convert.rs",
    "src/app.rs",
    "src/domain.rs",
    "src/store.rs",
    "src/workers.rs",
    "src/error.rs",
    "src/metrics.rs",
    "tests/it/main.rs",
];

/// What else may stand at the top of a service's `src/`; a new kind of part belongs into STYLE first.
const SERVICE_MODULES: [&str; 13] = [
    "main", "lib", "config", "grpc", "convert", "app", "engine", "domain", "store", "clients", "workers",
    "error", "metrics",
];

fn rust_files() -> Vec<TextFile> {
    repository::files("", ".rs")
}

fn assert_none(offenders: &[String], what_to_do: &str) {
    assert!(offenders.is_empty(), "{what_to_do}:\n  {}", offenders.join("\n  "));
}

#[test]
fn every_service_has_the_same_files() {
    let mut missing = Vec::new();
    for service in SERVICES {
        for file in SERVICE_FILES {
            let path = format!("services/{service}/{file}");
            if !repository::root().join(&path).is_file() {
                missing.push(path);
            }
        }
    }
    assert_none(&missing, "every service has these");
}

#[test]
fn a_service_has_no_part_of_its_own_kind() {
    let mut offenders = Vec::new();
    for service in SERVICES {
        let source = format!("services/{service}/src/");
        for file in repository::files(&source, ".rs") {
            let top = file.path.trim_start_matches(&source).split('/').next().unwrap_or_default().to_owned();
            if !SERVICE_MODULES.contains(&top.trim_end_matches(".rs")) {
                offenders.push(file.path);
            }
        }
    }
    assert_none(&offenders, "a part of a service is one of the known kinds (STYLE, layout)");
}

#[test]
fn a_main_is_a_thin_shell() {
    let long: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.path.starts_with("services/") && file.path.ends_with("src/main.rs"))
        .filter(|file| file.text.lines().count() > 30)
        .map(|file| file.path)
        .collect();
    assert_none(&long, "a service's main hands over to kit::run, in under 30 lines");
}

#[test]
fn the_domain_does_no_io() {
    let forbidden =
        ["tonic", "tokio_postgres", "tokio::", "redis::", "onsale_proto", "onsale_storage", "async fn"];
    let mut offenders = Vec::new();
    for file in rust_files() {
        if file.path.contains("/src/domain/") || file.path.ends_with("/src/domain.rs") {
            for word in forbidden.iter().filter(|word| file.text.contains(**word)) {
                offenders.push(format!("{}: {word}", file.path));
            }
        }
    }
    assert_none(&offenders, "the domain decides; it does not fetch, wait or translate");
}

#[test]
fn files_stay_within_a_readable_length() {
    let long: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.text.lines().count() > LINES_MAX)
        .map(|file| format!("{}: {} lines", file.path, file.text.lines().count()))
        .collect();
    assert_none(&long, "one concept per file; split what is over 500 lines");
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path)
        .collect();
    assert_none(&silent, "a file opens with `//!`: what it is, and what it must never do");
}

#[test]
fn no_test_is_switched_off() {
    let marks = [concat!("#[ig", "nore"), concat!("#[should_", "panic")];
    let offenders: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| marks.iter().any(|mark| file.text.contains(mark)))
        .map(|file| file.path)
        .collect();
    assert_none(&offenders, "a test runs, and asserts what it expects");
}

#[test]
fn no_sleep_stands_in_for_a_condition_in_tests() {
    let mark = concat!("thread::", "sleep");
    let offenders: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.path.contains("/tests/") && file.text.contains(mark))
        .map(|file| file.path)
        .collect();
    assert_none(&offenders, "wait for a condition with a deadline (testkit::wait_until)");
}

/// The first string literal in a log macro's call that begins at `start`, if the call has one.
fn log_message(text: &str, start: usize) -> Option<&str> {
    let call = text.get(start..)?;
    let end = call.find(");").unwrap_or(call.len());
    let call = call.get(..end)?;
    // The message is the last literal: fields come before it.
    let close = call.rfind('"')?;
    let open = call.get(..close)?.rfind('"')?;
    call.get(open + 1..close)
}

#[test]
fn log_messages_are_lower_case_facts_without_a_full_stop() {
    let mut offenders = Vec::new();
    for file in
        rust_files().iter().filter(|file| !file.path.contains("/tests/") && !file.path.starts_with("tests/"))
    {
        for level in ["error!(", "warn!(", "info!(", "debug!("] {
            for (start, _) in file.text.match_indices(level) {
                let Some(message) = log_message(&file.text, start + level.len()) else { continue };
                let upper = message.chars().next().is_some_and(char::is_uppercase);
                if upper || message.ends_with('.') || message.contains('{') {
                    offenders.push(format!("{}: {message:?}", file.path));
                }
            }
        }
    }
    assert_none(&offenders, "lower case, no full stop, facts as fields");
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let homes = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];
    let mut offenders = Vec::new();
    for file in repository::files("", "") {
        for (number, line) in file.text.lines().enumerate() {
            if homes.iter().any(|home| line.contains(home)) {
                offenders.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert_none(&offenders, "paths are relative to the repository, or come from the configuration");
}

#[test]
fn decisions_are_numbered_without_a_gap() {
    let mut numbers: Vec<String> = repository::files("docs/adr", ".md")
        .into_iter()
        .map(|file| file.path.chars().skip("docs/adr/".len()).take(4).collect())
        .collect();
    numbers.sort();
    let expected: Vec<String> = (1..=numbers.len()).map(|number| format!("{number:04}")).collect();
    assert_eq!(numbers, expected, "docs/adr/NNNN-title.md, from 0001");
}
