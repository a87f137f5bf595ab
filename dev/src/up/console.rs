//! Output of `onsale up`: on a terminal a progress line that is redrawn while the mesh starts, elsewhere plain lines.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use onsale::output;

/// Most process names in the progress line. A line that wraps cannot be erased.
const NAMES_MAX: usize = 3;

/// Standard output, with the progress line that is on it.
#[derive(Debug)]
pub(crate) struct Console {
    terminal: bool,
    begun: Instant,
    /// The progress line. `None` before the first and after the start.
    live: Option<String>,
}

impl Console {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), begun: Instant::now(), live: None }
    }

    /// Returns the time since `onsale up` began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Prints a permanent line above the progress line.
    pub(crate) fn say(&mut self, text: &str) {
        self.clear();
        output::say(text);
        self.draw();
    }

    /// Prints that a process became ready, unless the progress line shows it.
    pub(crate) fn ready(&mut self, name: &str) {
        if !self.terminal {
            output::say(format_args!("{name} is ready ({})", seconds(self.elapsed())));
        }
    }

    /// Redraws the progress line. Does nothing if the output is not a terminal.
    pub(crate) fn progress(&mut self, ready: usize, all: usize, waiting_for: &[String]) {
        if !self.terminal {
            return;
        }
        let mut names = waiting_for.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        if waiting_for.is_empty() {
            names.push_str("the stores");
        } else if waiting_for.len() > NAMES_MAX {
            names.push_str(", …");
        }
        self.clear();
        self.live = Some(format!("{}  {ready} of {all} ready, waiting for {names}", seconds(self.elapsed())));
        self.draw();
    }

    /// Erases the progress line.
    pub(crate) fn finish_progress(&mut self) {
        self.clear();
        self.live = None;
    }

    fn clear(&self) {
        if self.live.is_some() {
            output::write("\r\x1b[K");
        }
    }

    fn draw(&self) {
        if let Some(live) = &self.live {
            output::write(live);
        }
    }
}

/// Formats a duration in seconds with one decimal.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{}.{} s", duration.as_secs(), duration.subsec_millis() / 100)
}
