//! Error reasons: each has one declaration, one code and one section in `docs/errors/`.
#![expect(clippy::expect_used, reason = "a failing helper fails its test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use onsale_proto::DESCRIPTORS;
use prost_reflect::DescriptorPool;

const CODES: [&str; 11] = [
    "INVALID_ARGUMENT",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "ABORTED",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "INTERNAL",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the reasons of each area, as on the wire, from the descriptors.
fn reasons() -> BTreeMap<String, BTreeSet<String>> {
    let pool = DescriptorPool::decode(DESCRIPTORS).expect("the build wrote a descriptor set");
    let mut reasons = BTreeMap::new();
    for enumeration in pool.all_enums().filter(|enumeration| enumeration.name() == "ErrorReason") {
        let area = enumeration.package_name().split('.').nth(1).unwrap_or_default().to_owned();
        let values = enumeration.values().filter(|value| value.number() != 0);
        let names = values.map(|value| value.name().trim_start_matches("ERROR_REASON_").to_owned());
        reasons.insert(area, names.collect());
    }
    reasons
}

/// Returns the code of each reason from the first sentence of its comment. Reads the file, as descriptors have no comments.
fn codes_in_contract(area: &str) -> BTreeMap<String, String> {
    let path = root().join("proto/onsale").join(area).join("v1/error_reason.proto");
    let text = fs::read_to_string(&path).expect("every area has its reasons in error_reason.proto");
    let mut codes = BTreeMap::new();
    let mut comment: Option<&str> = None;
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("//") {
            comment = comment.or(Some(words.trim()));
            continue;
        }
        let reason = line.strip_prefix("ERROR_REASON_").and_then(|rest| rest.split(' ').next());
        if let (Some(reason), Some(words)) = (reason, comment) {
            codes.insert(reason.to_owned(), words.split('.').next().unwrap_or_default().to_owned());
        }
        comment = None;
    }
    codes.remove("UNSPECIFIED");
    codes
}

/// Returns the code of each reason from the first line of its section in the documentation.
fn codes_on_page(area: &str) -> BTreeMap<String, String> {
    let path = page(area);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let sections = text.split("\n## ").skip(1).map(|section| {
        let mut lines = section.lines().filter(|line| !line.is_empty());
        let reason = lines.next().unwrap_or_default().to_owned();
        let code = lines.next().and_then(|line| line.split('`').nth(1)).unwrap_or_default().to_owned();
        (reason, code)
    });
    sections.collect()
}

fn page(area: &str) -> PathBuf {
    let name = if area == "type" { "common" } else { area };
    root().join("docs/errors").join(format!("{name}.md"))
}

#[test]
fn each_reason_has_one_documented_section_with_its_code() {
    for (area, reasons) in reasons() {
        let contract = codes_in_contract(&area);
        assert_eq!(
            contract.keys().cloned().collect::<BTreeSet<_>>(),
            reasons,
            "reasons of {area} in its file"
        );
        assert_eq!(codes_on_page(&area), contract, "{} against the contract", page(&area).display());
    }
}

#[test]
fn comment_of_each_reason_begins_with_a_canonical_code() {
    for area in reasons().keys() {
        for (reason, code) in codes_in_contract(area) {
            assert!(CODES.contains(&code.as_str()), "{area} {reason} begins with {code:?}");
        }
    }
}

#[test]
fn no_reason_is_declared_twice() {
    let mut areas_by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (area, reasons) in reasons() {
        for reason in reasons {
            areas_by_reason.entry(reason).or_default().push(area.clone());
        }
    }
    areas_by_reason.retain(|_, areas| areas.len() > 1);
    assert!(areas_by_reason.is_empty(), "reasons declared twice: {areas_by_reason:?}");
}

#[test]
fn index_links_every_page_and_no_other_page_exists() {
    let folder = root().join("docs/errors");
    let index = fs::read_to_string(folder.join("README.md")).expect("the index exists");
    let mut pages: BTreeSet<PathBuf> = reasons().keys().map(|area| page(area)).collect();
    for page in &pages {
        let name = page.file_name().expect("a page is a file").to_string_lossy();
        assert!(index.contains(&format!("]({name})")), "the index does not link {name}");
    }
    pages.insert(folder.join("README.md"));
    let found: BTreeSet<PathBuf> = fs::read_dir(&folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("readable").path())
        .collect();
    assert_eq!(found, pages);
}
