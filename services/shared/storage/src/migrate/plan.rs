//! Decides what is left to apply, from what was applied and what the files say. Pure.

use refinery::Migration;

/// The files and what was applied do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An applied file was changed afterwards.
    #[error("{name} was changed after it was applied as {applied}: undo the change and add a new file")]
    Divergent {
        /// The file.
        name: String,
        /// What it was called when it was applied.
        applied: String,
    },
    /// A file was added below one that is already applied.
    #[error("{name} comes before {last}, which is already applied: give it a higher number")]
    OutOfOrder {
        /// The file.
        name: String,
        /// The last applied.
        last: String,
    },
    /// An applied file is gone.
    #[error("{applied} is applied and has no file any more: put it back")]
    Missing {
        /// What was applied.
        applied: String,
    },
    /// Two files have one number.
    #[error("{name} has the number of another file: give it the next one")]
    Repeated {
        /// The second of them.
        name: String,
    },
}

/// The files still to apply, in order. Applied files newer than all of ours belong to a later release and are fine.
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
    fn what_is_not_applied_is_pending_in_order() {
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
    fn a_lost_file_is_refused() {
        let files = applied(&["V0002__b"]);
        assert!(matches!(pending(&applied(&["V0001__a"]), &files), Err(Refusal::Missing { .. })));
    }

    #[test]
    fn two_files_of_one_number_are_refused() {
        let files = applied(&["V0001__a", "V0001__b"]);
        assert!(matches!(pending(&[], &files), Err(Refusal::Repeated { .. })));
    }

    #[test]
    fn a_schema_of_a_later_release_is_left_alone() {
        assert_eq!(pending(&applied(&["V0001__a", "V0002__b"]), &applied(&["V0001__a"])).unwrap(), []);
    }

    #[test]
    fn a_schema_without_files_has_nothing_pending() {
        assert_eq!(pending(&[], &[]).unwrap(), []);
    }
}
