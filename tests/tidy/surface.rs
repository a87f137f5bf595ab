//! Public surface of the services: public declarations per 1,000 code lines.

use std::fmt;

use super::{bounds, production_files, rounded};

/// Public declarations of one service.
pub(crate) struct Density {
    /// Lines that start with `pub `, but not with `pub(`.
    declarations: usize,
    /// Declarations that are struct fields.
    fields: usize,
    /// Lines that are neither blank nor a comment.
    code_lines: usize,
}

impl Density {
    /// Returns the declarations per 1,000 code lines, struct fields included.
    fn per_thousand(&self) -> usize {
        per_thousand(self.declarations, self.code_lines)
    }
}

impl fmt::Display for Density {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without_fields = per_thousand(self.declarations - self.fields, self.code_lines);
        write!(formatter, "{:>3} ({without_fields})", self.per_thousand())
    }
}

fn per_thousand(count: usize, code_lines: usize) -> usize {
    rounded(count * 1_000, code_lines)
}

/// Returns true if a public declaration is a struct field, such as `pub name: Type,`.
fn is_field(declaration: &str) -> bool {
    let name = declaration.trim_start_matches("pub ").split(':').next().unwrap_or_default();
    declaration.contains(':') && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// Measures one service, without its tests.
pub(crate) fn density_of(service: &str) -> Density {
    let mut density = Density { declarations: 0, fields: 0, code_lines: 0 };
    for file in production_files(&format!("services/{service}")) {
        for line in file.text.lines().map(str::trim_start) {
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            density.code_lines += 1;
            if line.starts_with("pub ") {
                density.declarations += 1;
                density.fields += usize::from(is_field(line));
            }
        }
    }
    density
}

#[test]
fn services_keep_their_public_surface_small() {
    for bounds in bounds::SERVICES {
        let (reached, max) = (density_of(bounds.service).per_thousand(), bounds.public_max);
        assert!(
            reached <= max,
            "{}: {reached} public declarations per 1,000 code lines, more than {max}; use pub(crate)",
            bounds.service
        );
    }
}

#[test]
fn fields_are_told_from_other_declarations() {
    assert!(is_field("pub claim_id: ClaimId,"));
    for other in ["pub fn new(id: Id) -> Self {", "pub mod app;", "pub use a::B;", "pub struct A(u32);"] {
        assert!(!is_field(other), "{other}");
    }
}
