//! Dependencies between the modules of a service: they point one way, and protobuf stays in the outer modules.

use std::{collections::BTreeSet, fmt};

use onsale_tests::repository::{self, SERVICES, TextFile};

use super::{assert_none, bounds};

/// Modules of a service with the modules that each may name. `lib` and `main` may name all.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("grpc", &["app", "convert", "domain", "error"]),
    ("workers", &["app", "convert", "domain", "engine", "store", "config", "error", "metrics"]),
    ("clients", &["convert", "domain", "error", "metrics", "config"]),
    ("app", &["engine", "domain", "store", "clients", "config", "error", "metrics"]),
    ("engine", &["domain", "store", "clients", "config", "error", "metrics"]),
    ("store", &["domain", "error", "metrics", "config"]),
    ("convert", &["domain", "error"]),
    ("domain", &[]),
    ("error", &["domain", "store", "clients"]),
    ("config", &["domain", "clients"]),
    ("metrics", &["domain"]),
];

/// Modules that must not know protobuf.
const WITHOUT_PROTOBUF: [&str; 4] = ["app", "domain", "store", "engine"];

/// A reference from one module of a service to another that the graph forbids.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    from: String,
    to: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} -> {}", self.path, self.from, self.to)
    }
}

/// Returns the module path of a file below `src/`: `app/create_claim.rs` is `["app", "create_claim"]`. Empty for the crate
/// root.
fn module_path(relative: &str) -> Vec<&str> {
    let parts: Vec<_> = relative.trim_end_matches(".rs").split('/').collect();
    if matches!(*parts, ["lib" | "main"]) { Vec::new() } else { parts }
}

/// Returns the module that a line opens, as in `mod tests {`.
fn opened_module(line: &str) -> Option<&str> {
    let (visibility, name) = line.trim().strip_suffix(" {")?.split_once("mod ")?;
    let is_plain = visibility.is_empty() || visibility.starts_with("pub");
    is_plain.then_some(name)
}

/// Returns the top-level modules that the paths `crate::…` and `super::…` in `text` name, use trees included. Relies on the
/// layout of rustfmt to find inline modules, and skips comments.
fn named_modules<'a>(module: &[&'a str], text: &'a str) -> BTreeSet<&'a str> {
    let mut named = BTreeSet::new();
    // Inline modules around the current line, with their indentation.
    let mut inline: Vec<(usize, &str)> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        if inline.last().is_some_and(|(opened_at, _)| *opened_at == indentation && code.starts_with('}')) {
            inline.pop();
        }
        let here: Vec<_> = module.iter().copied().chain(inline.iter().map(|(_, name)| *name)).collect();
        if !code.starts_with("//") {
            for start in path_starts(line) {
                // A use tree may continue on the next lines.
                name_first(text.get(offset + start..).unwrap_or_default(), &here, &mut named);
            }
        }
        if let Some(name) = opened_module(line) {
            inline.push((indentation, name));
        }
        offset += line.len();
    }
    named
}

/// Returns the positions in a line at which a path begins with `crate::` or `super::`.
fn path_starts(line: &str) -> impl Iterator<Item = usize> {
    let matches = line.match_indices("crate::").chain(line.match_indices("super::"));
    matches.map(|(start, _)| start).filter(|start| {
        let before = line.get(..*start).unwrap_or_default();
        !before.ends_with(|last: char| last.is_alphanumeric() || matches!(last, '_' | ':' | '$'))
    })
}

/// Resolves a path, or each branch of a use tree, that begins at `text`, relative to the module path `base`. Adds the first
/// segment of each result to `named`. Returns the rest of the text.
fn name_first<'a>(text: &'a str, base: &[&'a str], named: &mut BTreeSet<&'a str>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut branches) = text.strip_prefix('{') {
        loop {
            branches = branches.trim_start();
            if let Some(rest) = branches.strip_prefix('}') {
                return rest;
            }
            let rest = name_first(branches, base, named).trim_start();
            let rest = rest.find([',', '}']).and_then(|end| rest.get(end..)).unwrap_or_default();
            branches = rest.strip_prefix(',').unwrap_or(rest);
            if branches.is_empty() {
                return branches;
            }
        }
    }
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let (segment, rest) = text.split_at(end);
    let mut path = base.to_vec();
    match segment {
        "crate" => path.clear(),
        "super" => drop(path.pop()),
        "self" | "" => {}
        _ => path.push(segment),
    }
    match rest.strip_prefix("::") {
        Some(rest) => name_first(rest, &path, named),
        None => {
            named.extend(path.first());
            rest
        }
    }
}

fn source_files(service: &str) -> (String, Vec<TextFile>) {
    let source = format!("services/{service}/src/");
    let files = repository::files(&source, ".rs");
    (source, files)
}

/// Returns the forbidden references of a service, at most one per file and module.
pub(crate) fn violations(service: &str) -> BTreeSet<Violation> {
    let (source, files) = source_files(service);
    let mut violations = BTreeSet::new();
    for file in files {
        let module = module_path(file.path.trim_start_matches(&source));
        let Some((from, allowed)) = ALLOWED.iter().find(|(from, _)| module.first() == Some(from)) else {
            continue;
        };
        for to in named_modules(&module, &file.text) {
            let is_module = ALLOWED.iter().any(|(known, _)| *known == to);
            if is_module && to != *from && !allowed.contains(&to) {
                violations.insert(Violation {
                    path: file.path.clone(),
                    from: (*from).to_owned(),
                    to: to.to_owned(),
                });
            }
        }
    }
    violations
}

/// Returns the files of all services that name protobuf in a module that must not know it.
pub(crate) fn protobuf_files() -> Vec<String> {
    let mut offenders = Vec::new();
    for service in SERVICES {
        let (source, files) = source_files(service);
        for file in files {
            let module = module_path(file.path.trim_start_matches(&source));
            let is_bound = module.first().is_some_and(|top| WITHOUT_PROTOBUF.contains(top));
            if is_bound && ["onsale_proto", "prost"].iter().any(|name| file.text.contains(name)) {
                offenders.push(file.path);
            }
        }
    }
    offenders
}

#[test]
fn modules_of_a_service_depend_one_way() {
    for bounds in bounds::SERVICES {
        let violations = violations(bounds.service);
        if violations.len() > bounds.forbidden_references_max {
            let listed: Vec<_> = violations.iter().map(Violation::to_string).collect();
            assert_none(
                &listed,
                "more forbidden references between modules than before (tests/tidy/modules.rs)",
            );
        }
    }
}

#[test]
fn inner_modules_do_not_name_protobuf() {
    let offenders = protobuf_files();
    if offenders.len() > bounds::PROTOBUF_FILES_MAX {
        assert_none(&offenders, "app, domain, store and engine must not name onsale_proto or prost");
    }
}

#[test]
fn every_module_of_the_layout_has_a_rule() {
    let known: BTreeSet<_> = ALLOWED.iter().map(|(module, _)| *module).chain(["lib", "main"]).collect();
    assert_eq!(known, super::layout::SERVICE_MODULES.into());
}

#[test]
fn named_modules_are_found_in_paths_and_use_trees() {
    let text = "use crate::{\n    config::{self, Config},\n    domain::{A, b::C as D},\n    store,\n};\n\
        use super::super::error::Error;\n// crate::comment\nfn f() -> crate::metrics::M { super::g() }\n\
        macro!($crate::hidden::x);\npub(crate) mod inner {\n    use super::super::super::clients;\n}\n\
        use super::{super::workers, y};\n";
    let named = named_modules(&["app", "create"], text);
    let expected =
        ["app", "clients", "config", "domain", "error", "metrics", "store", "workers"].map(str::to_owned);
    assert_eq!(named.into_iter().collect::<Vec<_>>(), expected);
}
