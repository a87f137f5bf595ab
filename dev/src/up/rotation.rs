//! Keeps logs from growing without end: what is too long is set aside once, and the log begins anew.
//!
//! The process goes on writing to the same file, so the file is copied and cut, not moved. Lines written between the two
//! steps are lost; a development log may lose a line once in many megabytes.

use std::{fs::File, path::Path};

/// Beyond this a log is set aside; with the one set aside before, a process has twice this much.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Looks at every log in `folder`.
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
    fn a_long_log_is_set_aside_and_its_writer_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("claim.log");
        let mut writer = File::options().create(true).append(true).open(&log).unwrap();
        writer.write_all(&[b'x'; 100]).unwrap();
        rotate_beyond(directory.path(), 100);
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 100, "not beyond it yet");
        writer.write_all(b"y").unwrap();
        rotate_beyond(directory.path(), 100);
        writer.write_all(b"after").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "after");
        assert_eq!(std::fs::metadata(directory.path().join("claim.log.1")).unwrap().len(), 101);
    }
}
