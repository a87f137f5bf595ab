//! Layout of services and files, and rules for single lines: file lengths, headers, log messages, paths.

use onsale_tests::repository::{self, SERVICES};

use super::{assert_none, rust_files};

const LINES_MAX: usize = 500;

/// Files that every service has, so that all six services look alike.
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

/// Modules allowed at the top of a service's `src/`. Describe a new module in STYLE before adding it to this list.
pub(crate) const SERVICE_MODULES: [&str; 13] = [
    "main", "lib", "config", "grpc", "convert", "app", "domain", "engine", "store", "clients", "workers",
    "error", "metrics",
];

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
    assert_none(&missing, "every service must have these files");
}

#[test]
fn services_have_only_known_modules() {
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
    assert_none(&offenders, "a file of a service must belong to a known module (STYLE, layout)");
}

#[test]
fn main_files_have_at_most_30_lines() {
    let long: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.path.starts_with("services/") && file.path.ends_with("src/main.rs"))
        .filter(|file| file.text.lines().count() > 30)
        .map(|file| file.path)
        .collect();
    assert_none(&long, "the main function of a service only calls kit::run, in at most 30 lines");
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
    assert_none(&offenders, "domain code decides; it must not fetch, wait or convert");
}

#[test]
fn files_have_at_most_500_lines() {
    let long: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.text.lines().count() > LINES_MAX)
        .map(|file| format!("{}: {} lines", file.path, file.text.lines().count()))
        .collect();
    assert_none(&long, "split files of more than 500 lines");
}

#[test]
fn every_file_has_a_header_comment() {
    let undocumented: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path)
        .collect();
    assert_none(&undocumented, "a file must open with `//! ` and its purpose");
}

#[test]
fn no_test_is_disabled_or_expected_to_panic() {
    let marks = [concat!("#[ig", "nore"), concat!("#[should_", "panic")];
    let offenders: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| marks.iter().any(|mark| file.text.contains(mark)))
        .map(|file| file.path)
        .collect();
    assert_none(&offenders, "a test must run and assert its result");
}

#[test]
fn tests_do_not_sleep() {
    let mark = concat!("thread::", "sleep");
    let offenders: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.path.contains("/tests/") && file.text.contains(mark))
        .map(|file| file.path)
        .collect();
    assert_none(&offenders, "use testkit::wait_until to wait for a condition with a deadline");
}

/// Returns the message of a log macro's call whose arguments begin at `start`, or `None` if the call has no string literal.
fn log_message(text: &str, start: usize) -> Option<&str> {
    let call = text.get(start..)?;
    let end = call.find(");").unwrap_or(call.len());
    let call = call.get(..end)?;
    // The message is the last literal, because fields come first.
    let close = call.rfind('"')?;
    let open = call.get(..close)?.rfind('"')?;
    call.get(open + 1..close)
}

#[test]
fn log_messages_are_lower_case_without_period_and_values() {
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
    assert_none(&offenders, "log messages are lower case without a period; values go into fields");
}

#[test]
fn no_file_contains_paths_of_a_developer_machine() {
    let homes = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];
    let mut offenders = Vec::new();
    for file in repository::files("", "") {
        for (number, line) in file.text.lines().enumerate() {
            if homes.iter().any(|home| line.contains(home)) {
                offenders.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert_none(&offenders, "paths must be relative to the repository or come from the configuration");
}

#[test]
fn adrs_are_numbered_without_gaps() {
    let mut numbers: Vec<String> = repository::files("docs/adr", ".md")
        .into_iter()
        .map(|file| file.path.chars().skip("docs/adr/".len()).take(4).collect())
        .collect();
    numbers.sort();
    let expected: Vec<String> = (1..=numbers.len()).map(|number| format!("{number:04}")).collect();
    assert_eq!(numbers, expected, "ADRs are named docs/adr/NNNN-title.md, starting at 0001");
}
