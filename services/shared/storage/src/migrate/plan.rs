//! Compares the applied migrations with the files and returns the pending ones. Pure functions.

use refinery::Migration;

/// A contradiction between the migration files and the schema's history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A file was changed or renamed after it was applied.
    #[error("{name} was changed after it was applied as {applied}: undo the change and add a new file")]
    Divergent {
        /// Name of the file.
        name: String,
        /// Name under which it was applied.
        applied: String,
    },
    /// A new file has a lower number than an applied one.
    #[error("{name} comes before {last}, which is already applied: give it a higher number")]
    OutOfOrder {
        /// Name of the file.
        name: String,
        /// Name of the last applied file.
        last: String,
    },
    /// An applied file no longer exists.
    #[error("{applied} is applied but its file is missing: restore the file")]
    Missing {
        /// Name of the applied file.
        applied: String,
    },
    /// Two files have the same number.
    #[error("{name} has the number of another file: give it the next free number")]
    Repeated {
        /// Name of the second file.
        name: String,
    },
}

/// Returns the files to apply, in order. Applied files above the newest known file belong to a later release and are
/// accepted.
pub(super) fn pending(applied: &[Migration], files: &[Migration]) -> Result<Vec<Migration>, Refusal> {
    let mut files = files.to_vec();
    files.sort();
    if let Some([_, second]) = files.array_windows().find(|[one, two]| one.version() == two.version()) {
        return Err(Refusal::Repeated { name: second.to_string() });
    }
    let newest = files.last().map(Migration::version);
    for before in applied {
        match files.iter().find(|file| file.version() == before.version()) {
            Some(file) if file != before => {
                return Err(Refusal::Divergent { name: file.to_string(), applied: before.to_string() });
            }
            Some(_) => {}
            None if Some(before.version()) > newest => {}
            None => return Err(Refusal::Missing { applied: before.to_string() }),
        }
    }
    let last = applied.iter().max();
    let is_applied = |file: &Migration| applied.iter().any(|it| it.version() == file.version());
    files.retain(|file| !is_applied(file));
    match (files.first(), last) {
        (Some(file), Some(last)) if file.version() < last.version() => {
            Err(Refusal::OutOfOrder { name: file.to_string(), last: last.to_string() })
        }
        _ => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, sql: &str) -> Migration {
        Migration::unapplied(name, sql).unwrap()
    }

    fn applied(names: &[&str]) -> Vec<Migration> {
        names.iter().map(|name| file(name, "SELECT 1")).collect()
    }

    #[test]
    fn unapplied_files_are_pending_in_order() {
        let files = applied(&["V0003__c", "V0001__a", "V0002__b"]);
        let pending = pending(&applied(&["V0001__a"]), &files).unwrap();
        assert_eq!(pending.iter().map(|it| it.version()).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_changed_file_is_refused() {
        let changed = [file("V0001__a", "SELECT 2")];
        assert!(matches!(pending(&applied(&["V0001__a"]), &changed), Err(Refusal::Divergent { .. })));
    }

    #[test]
    fn a_renamed_file_is_refused() {
        let renamed = applied(&["V0001__b"]);
        assert!(matches!(pending(&applied(&["V0001__a"]), &renamed), Err(Refusal::Divergent { .. })));
    }

    #[test]
    fn a_file_below_an_applied_one_is_refused() {
        let files = applied(&["V0001__a", "V0002__b"]);
        assert!(matches!(pending(&applied(&["V0002__b"]), &files), Err(Refusal::OutOfOrder { .. })));
    }

    #[test]
    fn missing_file_of_an_applied_migration_is_refused() {
        let files = applied(&["V0002__b"]);
        assert!(matches!(pending(&applied(&["V0001__a"]), &files), Err(Refusal::Missing { .. })));
    }

    #[test]
    fn two_files_with_one_number_are_refused() {
        let files = applied(&["V0001__a", "V0001__b"]);
        assert!(matches!(pending(&[], &files), Err(Refusal::Repeated { .. })));
    }

    #[test]
    fn schema_of_a_later_release_is_accepted() {
        assert_eq!(pending(&applied(&["V0001__a", "V0002__b"]), &applied(&["V0001__a"])).unwrap(), []);
    }

    #[test]
    fn a_schema_without_files_has_nothing_pending() {
        assert_eq!(pending(&[], &[]).unwrap(), []);
    }
}
