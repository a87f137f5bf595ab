//! Walks: the ordered lists of files in `docs/style.md` that a reader follows through one request or event.

use std::{collections::BTreeSet, fmt};

use onsale_tests::repository;

use super::bounds::{self, WalkBounds};

const DOCUMENT: &str = "docs/style.md";

/// One walk of the document.
pub(crate) struct Walk {
    bounds: WalkBounds,
    /// Steps in order, as paths relative to the root.
    steps: Vec<String>,
}

impl Walk {
    /// Returns the number of distinct files that count for this walk.
    fn file_count(&self) -> usize {
        let counted = self.steps.iter().filter(|step| step.starts_with(self.bounds.counted_below));
        counted.collect::<BTreeSet<_>>().len()
    }

    /// Returns the number of steps to a file that the walk has already left.
    fn return_count(&self) -> usize {
        let (mut seen, mut last, mut returns) = (BTreeSet::new(), None, 0);
        for step in &self.steps {
            let is_new = seen.insert(step);
            if !is_new && last != Some(step) {
                returns += 1;
            }
            last = Some(step);
        }
        returns
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, returns) = (self.file_count(), self.return_count());
        write!(formatter, "{:<16} {files} files, {returns} returns", self.bounds.name)
    }
}

/// Returns the path in backticks with which an item of a numbered list begins, as in "1. `path`: why".
fn listed_path(line: &str) -> Option<&str> {
    let (number, item) = line.trim_start().split_once(". ")?;
    number.parse::<u32>().ok()?;
    item.trim_start().strip_prefix('`')?.split('`').next()
}

/// Returns the listed paths below the heading `### name`, up to the next heading, or `None` without that heading.
fn steps(document: &str, name: &str) -> Option<Vec<String>> {
    let heading = format!("### {name}");
    let mut lines = document.lines().skip_while(|line| line.trim_end().replace('`', "") != heading);
    lines.next()?;
    let section = lines.take_while(|line| !line.starts_with('#'));
    Some(section.filter_map(listed_path).map(str::to_owned).collect())
}

/// Reads all walks. Returns none while the document does not exist.
///
/// # Panics
/// Panics if the document exists but lacks a walk.
pub(crate) fn measured() -> Vec<Walk> {
    let document = repository::read(DOCUMENT);
    if document.is_empty() {
        return Vec::new();
    }
    let read = |bounds: WalkBounds| {
        let steps = steps(&document, bounds.name).unwrap_or_default();
        assert!(!steps.is_empty(), "{DOCUMENT} has no list of files below `### {}`", bounds.name);
        Walk { bounds, steps }
    };
    bounds::WALKS.into_iter().map(read).collect()
}

#[test]
fn walks_stay_short() {
    for walk in measured() {
        let files_max = walk.bounds.files_max.unwrap_or(usize::MAX);
        let returns_max = walk.bounds.returns_max.unwrap_or(usize::MAX);
        assert!(walk.file_count() <= files_max, "{walk}, more than {files_max} files");
        assert!(walk.return_count() <= returns_max, "{walk}, more than {returns_max} returns");
    }
}

#[test]
fn files_of_walks_exist() {
    for walk in measured() {
        for step in &walk.steps {
            assert!(repository::root().join(step).is_file(), "{}: {step} does not exist", walk.bounds.name);
        }
    }
}

#[test]
fn returns_count_steps_back_into_a_left_file() {
    let document =
        "### A\n\n1. `x.rs`: reads\n2. `x.rs`\n3. `y.rs` writes `z.rs`\n4. `x.rs`\n\n## B\n\n1. `b.rs`\n";
    let bounds = WalkBounds { name: "A", counted_below: "", files_max: None, returns_max: None };
    let walk = Walk { steps: steps(document, "A").unwrap(), bounds };
    assert_eq!(walk.steps, ["x.rs", "x.rs", "y.rs", "x.rs"]);
    assert_eq!((walk.file_count(), walk.return_count()), (2, 1));
    assert_eq!(steps(document, "C"), None);
}
