//! What a queue is and what may happen in it: types, states, rules. Nothing here fetches, waits or reads a clock.

pub mod admission;
pub mod block;
pub mod bucket;
pub mod entry;
pub mod estimate;
pub mod line;
pub mod line_change;
pub mod milestone;
pub mod notify_policy;
pub mod policy;
pub mod queue;
pub mod rank_index;
pub mod refusal;
pub mod watcher;
pub mod windowed_entry;
