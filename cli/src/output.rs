//! What a command says to whoever typed it.

use std::{fmt::Display, io::Write};

/// Says a line. Nobody may be reading any more (a pipe into `head`, a terminal that was closed): no reason to fail, least of
/// all for a supervisor that has processes to stop.
pub fn say(line: impl Display) {
    write(&format!("{line}\n"));
}

/// Says a text that ends no line.
pub fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
