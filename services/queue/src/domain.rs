//! What a queue is and what may happen in it: types, states, rules. Nothing here fetches, waits or reads a clock.

pub(crate) mod admission;
pub(crate) mod block;
pub(crate) mod bucket;
pub(crate) mod entry;
pub(crate) mod estimate;
pub(crate) mod line;
pub(crate) mod line_change;
pub(crate) mod milestone;
pub(crate) mod notify_policy;
pub(crate) mod policy;
pub(crate) mod queue;
pub mod rank_index;
pub(crate) mod refusal;
pub(crate) mod watcher;
pub(crate) mod windowed_entry;
