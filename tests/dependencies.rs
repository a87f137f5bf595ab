//! Checks of the dependency tree by the rules of `deny.toml` (licences, sources, bans, duplicate versions) and of our
//! manifests: no unused dependency, all versions in the workspace table, and no dependency between services.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use onsale_tests::{
    metadata::{Metadata, Package},
    repository::{self, SERVICES},
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    sources: Sources,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Exception>,
    skip: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

fn rules() -> Rules {
    toml::from_str(&repository::read("deny.toml")).expect("deny.toml has the format of cargo-deny")
}

fn metadata() -> Metadata {
    Metadata::load().expect("cargo describes the workspace")
}

/// Returns true if allowed licences can satisfy the SPDX expression. `/` is an old notation of OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    let mut depth = 0_i32;
    // Splits the expression at a word outside parentheses.
    let mut split_at = |word: &str| -> Vec<String> {
        let mut parts = vec![Vec::new()];
        for token in expression.split_whitespace() {
            if token == word && depth == 0 {
                parts.push(Vec::new());
                continue;
            }
            depth += i32::try_from(token.matches('(').count()).unwrap();
            depth -= i32::try_from(token.matches(')').count()).unwrap();
            parts.last_mut().unwrap().push(token);
        }
        parts.into_iter().map(|tokens| tokens.join(" ")).collect()
    };
    // AND binds tighter than OR, so split at OR first.
    let alternatives = split_at("OR");
    if alternatives.len() > 1 {
        return alternatives.iter().any(|part| is_allowed(part, allowed));
    }
    let requirements = split_at("AND");
    if requirements.len() > 1 {
        return requirements.iter().all(|part| is_allowed(part, allowed));
    }
    let licence = expression.trim();
    match licence.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.contains(licence),
    }
}

#[test]
fn licence_expressions_follow_spdx_precedence() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0".to_owned()]);
    for good in
        ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND Apache-2.0", "MIT AND (Apache-2.0)"]
    {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", ""] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn dependencies_have_allowed_licences_and_sources() {
    let (metadata, rules) = (metadata(), rules());
    let mut offenders = Vec::new();
    for package in metadata.theirs() {
        let licence = package.license.as_deref().unwrap_or_default();
        if !is_allowed(licence, &rules.licenses.allow) {
            offenders.push(format!("{} {}: licence {licence:?}", package.name, package.version));
        }
        let source = package.source.as_deref().unwrap_or("a path outside the workspace");
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !rules.sources.allow_registry.iter().any(|allowed| allowed == registry) {
            offenders.push(format!("{} {}: from {source}", package.name, package.version));
        }
    }
    assert!(offenders.is_empty(), "{offenders:#?}");
}

#[test]
fn banned_crates_are_not_in_the_tree() {
    let (metadata, rules) = (metadata(), rules());
    for ban in &rules.bans.deny {
        let found = metadata.theirs().any(|package| package.name == ban.name);
        assert!(!found, "{} is banned: {}", ban.name, ban.reason);
    }
}

/// Returns the prefix of a version that compatible versions share. Cargo unifies requirements with an equal prefix.
fn compatible_part(version: &str) -> String {
    let mut parts = version.split(['.', '-', '+']);
    match (parts.next(), parts.next(), parts.next()) {
        (Some("0"), Some("0"), Some(patch)) => format!("0.0.{patch}"),
        (Some("0"), Some(minor), _) => format!("0.{minor}"),
        (Some(major), _, _) => major.to_owned(),
        _ => version.to_owned(),
    }
}

#[test]
fn duplicate_versions_need_a_reason_in_deny_toml() {
    let (metadata, rules) = (metadata(), rules());
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in metadata.theirs() {
        versions.entry(&package.name).or_default().insert(compatible_part(&package.version));
    }
    let twice: BTreeSet<&str> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| *name).collect();
    let excused: BTreeSet<&str> = rules.bans.skip.iter().map(|skip| skip.name.as_str()).collect();
    let unexcused: Vec<_> =
        twice.difference(&excused).map(|name| format!("{name} {:?}", versions[name])).collect();
    assert!(unexcused.is_empty(), "duplicate versions without a reason in deny.toml: {unexcused:#?}");
    let stale: Vec<_> = excused.difference(&twice).collect();
    assert!(stale.is_empty(), "skipped in deny.toml, but without duplicate versions: {stale:?}");
    assert!(
        rules.bans.skip.iter().all(|skip| skip.reason.len() > 10),
        "an exception in deny.toml needs a reason"
    );
}

#[test]
fn members_inherit_versions_and_lints_from_the_workspace() {
    let metadata = metadata();
    let mut offenders = Vec::new();
    for package in metadata.ours() {
        let manifest: toml::Table = std::fs::read_to_string(&package.manifest_path).unwrap().parse().unwrap();
        if manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool)
            != Some(true)
        {
            offenders.push(format!("{}: lints.workspace", package.name));
        }
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let lines = manifest.get(table).and_then(toml::Value::as_table).into_iter().flatten();
            for (name, line) in lines {
                if line.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                    offenders.push(format!("{}: {table}.{name}", package.name));
                }
            }
        }
    }
    assert!(offenders.is_empty(), "without `workspace = true`: {offenders:#?}");
}

#[test]
fn services_do_not_depend_on_each_other() {
    let metadata = metadata();
    let crate_of = |service: &str| format!("onsale-{service}");
    let services: Vec<String> = SERVICES.iter().map(|service| crate_of(service)).collect();
    for package in metadata.ours().filter(|package| services.contains(&package.name)) {
        for dependency in &package.dependencies {
            let is_neighbor = services.contains(&dependency.name);
            assert!(
                !is_neighbor,
                "{} depends on {}: services meet only in proto",
                package.name, dependency.name
            );
        }
    }
}

#[test]
fn operator_binary_links_no_test_kit_sandbox_gateway_or_service() {
    let metadata = metadata();
    let ours: BTreeMap<&str, &Package> =
        metadata.ours().map(|package| (package.name.as_str(), package)).collect();
    let mut linked = BTreeSet::from(["onsale"]);
    let mut unvisited = vec!["onsale"];
    while let Some(package) = unvisited.pop().and_then(|name| ours.get(name)) {
        let normal = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
        for name in normal.map(|dependency| dependency.name.as_str()).filter(|name| ours.contains_key(name)) {
            if linked.insert(name) {
                unvisited.push(name);
            }
        }
    }
    let allowed = BTreeSet::from(["onsale", "onsale-kit", "onsale-proto", "onsale-storage", "onsale-types"]);
    let unexpected: Vec<_> = linked.difference(&allowed).collect();
    assert!(unexpected.is_empty(), "`onsale` links {unexpected:?}: such commands belong in dev/ (ADR 0021)");
}

/// Returns the concatenated Rust sources of a crate: library, binaries, tests and build script.
fn sources_of(package: &Package) -> String {
    let root = repository::root();
    let manifest = std::path::Path::new(&package.manifest_path);
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(&root).ok()).unwrap();
    repository::files(&folder.display().to_string(), ".rs").into_iter().map(|file| file.text).collect()
}

#[test]
fn manifests_list_no_unused_dependency() {
    // Generated code uses these crates, which our sources need not name.
    let used_by_generated_code = ["prost", "prost-types", "tonic", "tonic-prost"];
    let metadata = metadata();
    let mut unused = Vec::new();
    for package in metadata.ours() {
        let sources = sources_of(package);
        for dependency in &package.dependencies {
            let in_code = dependency.name.replace('-', "_");
            let generated = sources.contains("include_proto!")
                && used_by_generated_code.contains(&dependency.name.as_str());
            if !generated && !sources.contains(&in_code) {
                unused.push(format!("{}: {}", package.name, dependency.name));
            }
        }
    }
    assert!(unused.is_empty(), "unused dependencies: {unused:#?}");
}
