//! Output of commands on standard output.

use std::{fmt::Display, io::Write};

/// Prints a line. Ignores a closed standard output (a pipe into `head`, a closed terminal), so that a supervisor can still
/// stop its processes.
pub fn say(line: impl Display) {
    write(&format!("{line}\n"));
}

/// Prints a text without a line break, and flushes it.
pub fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
