//! Log rotation: a log of more than 16 MiB is copied to `NAME.log.1` and truncated.
//!
//! The process keeps writing to the same file, so the file is truncated, not moved. Lines written between copy and truncation
//! are lost, which a development log can bear.

use std::{fs::File, path::Path};

/// Size above which a log is rotated. With the rotated log, a process has at most about twice as much on disk.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Rotates every log in `folder` that is too long.
pub(crate) fn rotate(folder: &Path) {
    rotate_beyond(folder, LOG_BYTES_MAX);
}

fn rotate_beyond(folder: &Path, bytes_max: u64) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for log in entries.map(|entry| entry.path()) {
        let is_log = log.extension().is_some_and(|extension| extension == "log");
        let is_long = || std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > bytes_max);
        if is_log && is_long() && std::fs::copy(&log, log.with_added_extension("1")).is_ok() {
            let _ = File::options().write(true).open(&log).and_then(|file| file.set_len(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn long_log_is_rotated_while_its_writer_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("claim.log");
        let mut writer = File::options().create(true).append(true).open(&log).unwrap();
        writer.write_all(&[b'x'; 100]).unwrap();
        rotate_beyond(directory.path(), 100);
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 100, "at the limit, not above it");
        writer.write_all(b"y").unwrap();
        rotate_beyond(directory.path(), 100);
        writer.write_all(b"after").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "after");
        assert_eq!(std::fs::metadata(directory.path().join("claim.log.1")).unwrap().len(), 101);
    }
}
