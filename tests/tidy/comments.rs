//! Comments: openings with a question word and very short doc comments, in Rust, proto and settings files.
//!
//! A run of consecutive comment lines is one comment. Its first line decides the opening and the number of words.

use std::fmt;

use onsale_tests::repository::{self, TextFile};

use super::{
    bounds::{self, CommentBounds},
    production_files, rounded, rust_files,
};

/// Words with which no comment opens.
const BAD_OPENINGS: [&str; 10] =
    ["Who", "Whom", "Whose", "What", "When", "Where", "Whether", "Which", "Why", "How"];
/// Comments of at most this many words count as short.
const SHORT_WORDS_MAX: usize = 3;
/// Most offenders that a failure lists.
const LISTED_MAX: usize = 40;

/// Figures of the comments of one kind.
pub(crate) struct Figure {
    kind: &'static str,
    bounds: CommentBounds,
    count: usize,
    bad_openings: Vec<String>,
    short: Vec<String>,
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, count, bad_openings, short, .. } = self;
        write!(formatter, "{kind:<20} {count:>5}, bad openings {}", share(bad_openings.len(), *count))?;
        write!(formatter, ", short {}", share(short.len(), *count))
    }
}

/// Formats `part` with its share of `whole` in percent.
fn share(part: usize, whole: usize) -> String {
    let per_mille = per_mille(part, whole);
    format!("{part} ({}.{} %)", per_mille / 10, per_mille % 10)
}

/// Returns the share in tenths of a percent.
fn per_mille(part: usize, whole: usize) -> usize {
    rounded(part * 1_000, whole)
}

/// Returns the first line of each comment of `text` with its line number. `content` returns the content of a comment line,
/// without its marker, and `None` for any other line.
fn first_lines<'a>(
    text: &'a str,
    content: impl Fn(&'a str) -> Option<&'a str>,
) -> impl Iterator<Item = (usize, &'a str)> {
    let mut is_inside = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let comment = content(line.trim_start());
        let is_first = comment.is_some() && !is_inside;
        is_inside = comment.is_some();
        comment.filter(|_| is_first).map(|comment| (index + 1, comment))
    })
}

fn doc_comment(line: &str) -> Option<&str> {
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

fn inline_comment(line: &str) -> Option<&str> {
    line.strip_prefix("//").filter(|_| doc_comment(line).is_none())
}

fn is_bad_opening(comment: &str) -> bool {
    let word: String = comment.trim_start().chars().take_while(|letter| letter.is_alphabetic()).collect();
    BAD_OPENINGS.contains(&word.as_str())
}

fn measure(
    kind: &'static str,
    bounds: CommentBounds,
    files: &[TextFile],
    content: impl Fn(&str) -> Option<&str>,
) -> Figure {
    let mut figure = Figure { kind, bounds, count: 0, bad_openings: Vec::new(), short: Vec::new() };
    for file in files {
        for (line, comment) in first_lines(&file.text, &content) {
            figure.count += 1;
            let offender = || format!("{}:{line}:{comment}", file.path);
            if is_bad_opening(comment) {
                figure.bad_openings.push(offender());
            }
            if comment.split_whitespace().count() <= SHORT_WORDS_MAX {
                figure.short.push(offender());
            }
        }
    }
    figure
}

/// Measures the comments of all kinds.
pub(crate) fn figures() -> [Figure; 4] {
    let settings = repository::files("", "config.default.toml");
    let mut protos = repository::files("proto", ".proto");
    protos.extend(repository::files("services/shared/testkit/proto", ".proto"));
    [
        measure("doc comments", bounds::DOC_COMMENTS, &production_files(""), doc_comment),
        measure("inline comments", bounds::INLINE_COMMENTS, &rust_files(), inline_comment),
        measure("proto comments", bounds::PROTO_COMMENTS, &protos, |line| line.strip_prefix("//")),
        measure("setting comments", bounds::SETTING_COMMENTS, &settings, |line| line.strip_prefix('#')),
    ]
}

fn assert_at_most(max: usize, offenders: &[String], count: usize, what: &str) {
    let reached = per_mille(offenders.len(), count);
    let listed = offenders.get(..LISTED_MAX).unwrap_or(offenders).join("\n  ");
    assert!(reached <= max, "{reached} ‰ of {count} {what}, more than {max} ‰; among them:\n  {listed}");
}

#[test]
fn comments_do_not_open_with_question_words() {
    for figure in figures() {
        let what = format!("{} open with Who, What, How or the like", figure.kind);
        assert_at_most(figure.bounds.bad_openings_max, &figure.bad_openings, figure.count, &what);
    }
}

#[test]
fn doc_comments_have_more_than_three_words() {
    for figure in figures() {
        let what = format!("{} have three words or fewer", figure.kind);
        if let Some(max) = figure.bounds.short_max {
            assert_at_most(max, &figure.short, figure.count, &what);
        }
    }
}

#[test]
fn consecutive_comment_lines_count_as_one_comment() {
    let text = "//! Header\n//! more\n\nfn a() {}\n    /// How.\n    // Inline\n    /// Again";
    let docs: Vec<_> = first_lines(text, doc_comment).collect();
    assert_eq!(docs, [(1, " Header"), (5, " How."), (7, " Again")]);
    assert_eq!(first_lines(text, inline_comment).collect::<Vec<_>>(), [(6, " Inline")]);
    assert!(is_bad_opening(" How."));
    assert!(!is_bad_opening(" However"));
}
