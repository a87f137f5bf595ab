//! What `onsale up` tells whoever watches: on a terminal one line that changes while the mesh starts, elsewhere plain lines.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use onsale::output;

/// More names would not fit into the line, and a line that wraps cannot be taken back.
const NAMES_MAX: usize = 3;

/// Where it is told.
#[derive(Debug)]
pub(crate) struct Console {
    terminal: bool,
    begun: Instant,
    /// The line that changes, while there is one.
    live: Option<String>,
}

impl Console {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), begun: Instant::now(), live: None }
    }

    /// How long it has been.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A line that stays.
    pub(crate) fn say(&mut self, text: &str) {
        self.clear();
        output::say(text);
        self.draw();
    }

    /// A process became ready: worth a line only where no line changes.
    pub(crate) fn ready(&mut self, name: &str) {
        if !self.terminal {
            output::say(format_args!("{name} is ready ({})", seconds(self.elapsed())));
        }
    }

    /// How far the start is.
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

    /// Ends the line that changes.
    pub(crate) fn settle(&mut self) {
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

/// A duration as people say it.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{}.{} s", duration.as_secs(), duration.subsec_millis() / 100)
}
